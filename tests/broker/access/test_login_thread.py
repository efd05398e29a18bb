"""The thread on which secrets are checked."""

from __future__ import annotations

import threading

from support.waiting import until

from penstock_broker.access.login_thread import Finish, LoginThread


def test_its_end_does_not_wait_for_work_that_has_not_begun() -> None:
    thread = LoginThread()
    begun, may_end = threading.Event(), threading.Event()
    done: list[str] = []

    def first() -> Finish:
        begun.set()
        may_end.wait(60)
        done.append("first")
        return lambda: None

    def second() -> Finish:
        done.append("second")
        return lambda: None

    thread.submit(first)
    thread.submit(second)
    assert begun.wait(60)
    closing = threading.Thread(target=thread.close)
    closing.start()
    until(lambda: thread.is_ending, "the end of the thread")
    may_end.set()
    closing.join(60)
    assert done == ["first"]
