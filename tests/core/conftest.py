"""Hypothesis for the tests of the rules: no deadlines, since a test must not fail because a machine is busy."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("rules", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("rules")
