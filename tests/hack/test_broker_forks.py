"""A broker that the tests fork can be waited for, and killed, from several threads."""

from __future__ import annotations

import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from support.broker_forks import fork_broker


def test_each_thread_that_waits_gets_the_exit_code(tmp_path: Path) -> None:
    broker = fork_broker({"data": str(tmp_path / "data"), "listen": ["127.0.0.1:0"], "dev": True}, tmp_path / "log")
    with ThreadPoolExecutor(16) as threads:
        waiting = [threads.submit(broker.wait) for _ in range(15)]
        broker.kill()
        codes = [each.result() for each in waiting]
    assert codes == [-signal.SIGKILL] * 15
    broker.kill()  # which is for nothing
    assert broker.wait(0) == -signal.SIGKILL
