"""What is read from Surefire's reports."""

from __future__ import annotations

from pathlib import Path

from jms_suite import surefire

REPORT = """<?xml version="1.0" encoding="UTF-8"?>
<testsuite name="dev.penstock.jms.QueueTest" time="3.1" tests="4" errors="1" skipped="1" failures="1">
  <testcase name="browser" classname="dev.penstock.jms.QueueTest" time="1"/>
  <testcase name="groups" classname="dev.penstock.jms.QueueTest" time="1">
    <failure message="no message came ==&gt; expected: not &lt;null&gt;" type="AssertionFailedError"><![CDATA[
org.opentest4j.AssertionFailedError: no message came ==> expected: not <null>
\tat org.junit.jupiter.api.AssertNotNull.failNull(AssertNotNull.java:49)
\tat dev.penstock.jms.JmsTestCase.next(JmsTestCase.java:118)
\tat dev.penstock.jms.QueueTest.groups(QueueTest.java:214)
]]></failure>
  </testcase>
  <testcase name="order" classname="dev.penstock.jms.QueueTest" time="1">
    <error type="java.lang.IllegalStateException"><![CDATA[java.lang.IllegalStateException
\tat java.base/java.util.Optional.orElseThrow(Optional.java:403)
]]></error>
  </testcase>
  <testcase name="later" classname="dev.penstock.jms.QueueTest" time="0"><skipped message="not yet"/></testcase>
</testsuite>
"""


def test_a_test_that_did_not_pass_is_named_with_its_reason_and_its_line(tmp_path: Path) -> None:
    (tmp_path / "TEST-dev.penstock.jms.QueueTest.xml").write_text(REPORT)
    assert surefire.read(tmp_path) == surefire.Report(
        lines=("QueueTest: tests 4, failures 1, errors 1, skipped 1, 3.1 s",),
        tests=4,
        bad=(
            "QueueTest.groups: failure: no message came ==> expected: not <null> (QueueTest.java:214)",
            "QueueTest.order: error: java.lang.IllegalStateException",
            "QueueTest.later: skipped: not yet",
        ),
    )
