"""When the demo's Java clients cannot be compiled, the reason is said, not only the name of a log."""

from __future__ import annotations

import pytest
from e2e.jms_tool import why_maven_failed


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (
            "[ERROR] Failed to execute goal on project clients: Could not resolve dependencies: Could not transfer "
            "artifact org.apache.qpid:qpid-jms-client:pom:2.10.0: repo.example: Unknown host\n",
            "Maven cannot reach its repository: look at the connection; ~/.m2/settings.xml names a proxy or a mirror",
        ),
        ("[ERROR] ...: No space left on device\n", "the disk is full: Maven keeps what it downloads in ~/.m2"),
        (
            "[WARNING] old\n[ERROR] COMPILATION ERROR : \n[ERROR] Publisher.java:[3,1] class expected\n",
            "COMPILATION ERROR :\nPublisher.java:[3,1] class expected",
        ),
        ("Killed\n", "Maven says no error"),
    ],
)
def test_the_reason(said: str, why: str) -> None:
    assert why_maven_failed(said) == why
