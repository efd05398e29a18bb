"""A broker and its observer as processes of their own, with a clock that can be set: for what happens to them.

The counterpart of live_states.py, whose broker is whole and whose clients are not.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from e2e import stepped_clock
from e2e.state_scenarios import INTERVAL_SECONDS
from e2e.state_watch import Seen, WrongState
from support.waiting import found, until

from penstock_api import observer_api
from penstock_api.lag_result import LagResult, LagState, SubscriptionLag
from penstock_cli.up.layout import free_endpoint

__all__ = ["BrokenNode"]

START_SECONDS: Final = 300.0
LOOK_SECONDS: Final = 0.5
HOUR_SECONDS: Final = 3600
NAME: Final = "lone"
TOKEN: Final = "a-token-of-this-test"
PENSTOCK: Final = (sys.executable, "-m", "penstock_cli")
POLLS: Final = re.compile(r"^penstock_observer_polls_total (\S+)$", re.MULTILINE)

WAITING: Final = "5 messages wait"
FEW: Final = r"there (is only 1 snapshot|are only 2 snapshots) so far; 3 are needed"


class BrokenNode:
    """Both processes; `with` ends them whatever happens. The subscription `left` has messages, and no consumer."""

    def __init__(self, work: Path) -> None:
        self._work = work
        self._ends = ExitStack()
        self._clock = work / "clock"
        self._ready = work / "ready.json"
        self._observed = free_endpoint("127.0.0.1", 0)
        self._injected = time.monotonic()
        """When something was done last."""
        work.mkdir(parents=True)
        (work / "token").write_text(TOKEN, encoding="ascii")
        stepped_clock.set_ahead(self._clock, 0)
        (work / "data").mkdir()
        where = ("--data", str(work / "data"), "--listen", "127.0.0.1:0", "--ready-file", str(self._ready))
        command = (sys.executable, stepped_clock.__file__, str(self._clock), "broker", "--dev", *where)
        self._broker = self._start("broker", *command, "--observer-socket", str(work / "observer.sock"))
        until(self._ready.exists, f"the broker to serve; see {work / 'broker.log'}", START_SECONDS)
        self._observer = self._start_observer()

    def __enter__(self) -> BrokenNode:
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.close()

    @property
    def uri(self) -> str:
        """Of the clients."""
        return f"amqp://{json.loads(self._ready.read_text())['amqp']}"

    @property
    def left_commands(self) -> tuple[str, ...]:
        """For a Fleet: what makes the subscription, its messages, and leaves."""
        to = f"--uri {self.uri}"
        return (
            f"work left-a {to} --topic left --subscription left",
            "stop left-a",
            f"feed left-f {to} --topic left --burst 5 --most 5",
        )

    def play(self) -> list[Seen]:
        """Set the clock, kill the observer and the broker, and see each.

        Raises:
            WrongState: it was not seen within two periods, counted in polls.
        """
        young = rf"{WAITING}, the oldest for \d+ s, which is too short for a judgement"
        # An age of more than 999 s would have the step in it.
        unconsumed = rf"no consumer for \d{{1,3}} s; {WAITING}, the oldest for \d{{1,3}} s"
        was_set = r"the clock of its broker was set {} by 3600 s within the window, so rates are not known"
        waits = rf"{WAITING}, the oldest for \d{{1,3}} s"
        ahead, back = (f"{was_set.format(how)}; {waits}" for how in ("forward", "back"))
        self._see("the beginning", None, LagState.OK, young, polls=3)
        return [
            self._see("the broker's clock is set an hour ahead", self._ahead, LagState.UNKNOWN, ahead),
            self._lose_observer(),
            self._see("the observer starts again", self._restart_observer, LagState.UNKNOWN, FEW),
            self._see("the same, from its third poll on", None, LagState.UNCONSUMED, unconsumed, polls=3),
            self._see("the broker's clock is set an hour back", self._back, LagState.UNKNOWN, back),
            self._see(
                "the broker is killed with `kill -9`",
                self._broker.kill,
                LagState.UNKNOWN,
                "the broker does not answer: .+",
                polls=2,  # one that is missed is no outage
            ),
        ]

    def _ahead(self) -> None:
        stepped_clock.set_ahead(self._clock, HOUR_SECONDS)

    def _back(self) -> None:
        stepped_clock.set_ahead(self._clock, 0)

    def _restart_observer(self) -> None:
        self._observer = self._start_observer()

    def _lose_observer(self) -> Seen:
        """Nobody can be asked any more; `penstock lag` says so."""
        self._injected = time.monotonic()
        self._observer.kill()
        self._observer.wait()
        where = ("--observer", f"http://{self._observed}", "--token-file", str(self._work / "token"))
        about = ("--broker", NAME, "--namespace", "default", "--run-name", "away", "--no-publish", "--table")
        command = (*PENSTOCK, "lag", *where, *about, "--patience", "1")
        said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=START_SECONDS).stdout
        missing = [line for line in said.splitlines() if line.startswith("MISSING ")]
        if len(missing) != 1 or f"{NAME}-0: the observer did not answer" not in missing[0]:
            raise WrongState(f"the observer is down, and penstock lag says: {said}")
        return Seen("the observer is killed with `kill -9`", None, int(time.monotonic() - self._injected), missing[0])

    def _see(
        self, injected: str, act: Callable[[], None] | None, state: LagState, sentence: str, *, polls: int = 1
    ) -> Seen:
        """Do something (or go on after the last thing that was done) and wait for what is seen of it: within twice so
        many polls, besides the one under way.
        """
        before = self._polls()
        if act is not None:
            self._injected = time.monotonic()
            act()
        after = self._polls() if before is None else before

        def look() -> SubscriptionLag | None:
            done = self._polls()
            lag = self._left()
            if lag is not None and lag.state is state and re.fullmatch(sentence, lag.message) is not None:
                return lag
            if done is not None and done - (after or 0) > 2 * polls + 1:
                raise WrongState(f"{injected}: not {state}, but {lag} after {2 * polls + 1} polls")
            return None

        lag = found(look, f"{injected} to be seen", START_SECONDS, every=LOOK_SECONDS)
        return Seen(injected, state, int(time.monotonic() - self._injected), lag.message)

    def _left(self) -> SubscriptionLag | None:
        """The subscription as the observer judges it; None before its first poll."""
        body = self._get(observer_api.LIVE_LAG)
        if body is None:
            return None
        return next(iter(LagResult.model_validate_json(body).subscriptions), None)

    def _polls(self) -> int | None:
        """How many polls the observer has made; None if it does not serve yet."""
        body = self._get(observer_api.METRICS)
        counted = None if body is None else POLLS.search(body.decode())
        return None if counted is None else int(float(counted[1]))

    def _get(self, path: str) -> bytes | None:
        request = urllib.request.Request(f"http://{self._observed}{path}", headers={"Authorization": f"Bearer {TOKEN}"})
        try:
            with urllib.request.urlopen(request, timeout=10) as response:
                body: bytes = response.read()
                return body
        except urllib.error.HTTPError as error:
            error.close()
            return None
        except OSError:  # it does not serve
            return None

    def _start_observer(self) -> subprocess.Popen[bytes]:
        files = ("--broker-socket", str(self._work / "observer.sock"), "--ledger", str(self._work / "ledger"))
        serves = ("--listen", self._observed, "--token-file", str(self._work / "token"), "--broker", NAME)
        pace = ("--interval", str(INTERVAL_SECONDS))
        return self._start("observer", *PENSTOCK, "observer", *files, *serves, *pace)

    def _start(self, name: str, *command: str) -> subprocess.Popen[bytes]:
        log = self._ends.enter_context((self._work / f"{name}.log").open("ab"))
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
        self._ends.callback(process.wait)
        self._ends.callback(process.kill)
        return process
