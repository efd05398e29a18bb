"""JORAM's conformance tests of JMS 1.1 over Qpid JMS 1.x (Maven project tests/joram): all of them pass."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from jms_suite import maven
from support.broker_process import BrokerProcess

pytestmark = pytest.mark.jms

PROJECT = Path(__file__).resolve().parent.parent / "joram"
TESTS = 196  # of joram-jms-tests 1.0; none is left out


def test_all_of_jorams_conformance_tests_pass(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        ran = maven.test(PROJECT, {"penstock.amqp": broker.url.removeprefix("amqp://")})
    with capfd.disabled():
        sys.stdout.write("\n" + "\n".join(ran.report.lines) + f"\nJORAM: {ran.report.tests} tests\n")
    assert not ran.report.bad, "\n".join(ran.report.bad)
    assert ran.report.tests == TESTS, ran.output
    assert ran.code == 0, ran.output
