"""Qpid JMS 1.x (Maven project tests/joram): JORAM's conformance tests of JMS 1.1, and restarts with javax.jms."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from jms_suite import maven
from jms_suite.forks import serving
from support.broker_process import BrokerProcess

pytestmark = pytest.mark.jms

PROJECT = Path(__file__).resolve().parent.parent / "joram"
JORAM = 196  # of joram-jms-tests 1.0; none is left out
OWN = 3  # JavaxTest


def test_all_of_jorams_conformance_tests_pass(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with BrokerProcess(tmp_path / "data") as broker, serving() as forks:
        definitions = {
            "penstock.amqp": broker.url.removeprefix("amqp://"),
            "penstock.forks": str(forks),
        }
        ran = maven.test(PROJECT, definitions)
    with capfd.disabled():
        sys.stdout.write("\n" + "\n".join(ran.report.lines) + f"\nJORAM: {ran.report.tests - OWN} tests\n")
    assert not ran.report.bad, "\n".join(ran.report.bad)
    assert ran.report.tests == JORAM + OWN, ran.output
    assert ran.code == 0, ran.output
    # Each class that ends is progress: without it hack/test takes a slow stage for one that hangs.
    assert len(ran.ended) == len(ran.report.lines), ran.output
