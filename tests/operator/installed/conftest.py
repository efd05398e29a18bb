"""One operator for all tests of this folder, installed for the whole cluster when the first of them asks for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.installed_operator import Installation, open_installation


@pytest.fixture(scope="session")
def installation() -> Iterator[Installation]:
    with open_installation() as made:
        yield made
