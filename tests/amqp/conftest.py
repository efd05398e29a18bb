"""Settings of the property tests of this folder."""

from __future__ import annotations

from hypothesis import settings

# No test may fail because the machine is busy.
settings.register_profile("amqp", deadline=None)
settings.load_profile("amqp")
