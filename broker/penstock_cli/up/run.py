"""`penstock up`: starts broker and observer, declares the topology after each start, runs the lag job, ends everything.

One task per concern in one task group; `stop` ends them all. If the broker dies, it is started again on the same port
and data folder, and the topology is declared again, which changes nothing unless the data folder was emptied.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import shlex
import signal
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import yaml

from penstock_api import observer_api
from penstock_api.failure import CannotRun, Failure, Misuse
from penstock_api.resources import Broker
from penstock_cli.up import commands, declarations, observer_client
from penstock_cli.up.children import keep_running, run_once, tail
from penstock_cli.up.commands import Endpoints, Pace
from penstock_cli.up.layout import Layout, check_endpoint, free_endpoint
from penstock_cli.up.manifest_folder import Manifests, read
from penstock_cli.up.manifest_watch import FolderState, changes, folder_state
from penstock_cli.up.security import is_open
from penstock_cli.up.tls_listener import HOST, trusted, wants_tls
from penstock_cli.up.topology import declared
from penstock_lag.table import as_table

__all__ = ["Options", "run"]

READY_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the command line says."""

    folder: Path
    data: Path
    listen: tuple[str, int]
    listen_tls: tuple[str, int]
    """Where clients with certificates connect, if the Broker accepts certificates."""
    observer: tuple[str, int]
    pace: Pace
    shows_messages: bool
    """The page of the observer shows messages."""
    scheduled: bool
    """Run the lag job as `spec.lagAnalysis` says."""
    prune: bool
    """Remove from the broker what a manifest declared once and none does now, as its deletion policy allows."""
    watch: bool = False
    """Declare again when a manifest has changed."""


def run(options: Options, say: Callable[[str], None]) -> int:
    """Run until SIGTERM or SIGINT; 0 after an orderly end.

    Raises:
        Misuse: the manifests are wrong; nothing was started.
        CannotRun: the data folder can't be written, another `penstock up` uses it, or an address can't be had.
        Failure: a child can't run; of the same kind as the child's own.
    """
    manifests = read(options.folder)
    with tempfile.TemporaryDirectory(prefix="penstock-") as sockets:
        layout = Layout(options.data, Path(sockets))
        layout.prepare()
        with _alone(layout):
            _check_endpoints(options, manifests.broker)
            encrypted = free_endpoint(*options.listen_tls) if wants_tls(manifests.broker) else None
            endpoints = Endpoints(free_endpoint(*options.listen), free_endpoint(*options.observer), encrypted)
            with layout.usable():
                settings = commands.broker_settings(manifests.broker, endpoints, layout, options.folder)
                settings["observerPeek"] = options.shows_messages
                layout.broker_config.write_text(yaml.safe_dump(settings, sort_keys=False), encoding="utf-8")
            try:
                asyncio.run(_Up(manifests, endpoints, layout, options, say).run())
            except* Failure as failures:
                raise failures.exceptions[0] from None
            finally:
                layout.state.unlink(missing_ok=True)
    say("everything has ended")
    return 0


def _check_endpoints(options: Options, broker: Broker) -> None:
    """Raise `CannotRun` if an endpoint that was named can't be had."""
    if commands.serves_plain(broker):
        check_endpoint("--listen", *options.listen)
    if wants_tls(broker):
        check_endpoint("--listen-tls", *options.listen_tls)
    check_endpoint("--observer", *options.observer)


@contextmanager
def _alone(layout: Layout) -> Generator[None, None, None]:
    """Lock the data folder for this command."""
    with layout.usable():
        held = (layout.root / "up.lock").open("w")
    with held as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CannotRun(
                f"another `penstock up` uses {layout.root}.", "End it, or give this one another folder with --data."
            ) from None
        yield


class _Up:
    """The running command: what its tasks share."""

    def __init__(
        self, manifests: Manifests, endpoints: Endpoints, layout: Layout, options: Options, say: Callable[[str], None]
    ) -> None:
        self._manifests = manifests
        self._endpoints = endpoints
        self._layout = layout
        self._options = options
        self._say = say
        self._stop = asyncio.Event()
        self._pids: dict[str, int] = {"up": os.getpid()}
        self._told = False

    @property
    def _broker(self) -> Broker:
        return self._manifests.broker

    async def run(self) -> None:
        """Run until a signal comes or a child can't run."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        first = folder_state(self._options.folder)
        observer = commands.observer_child(self._broker, self._endpoints, self._layout, self._options.pace)
        if self._options.shows_messages:
            observer = commands.showing_messages(observer, self._layout)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(
                keep_running(
                    commands.broker_child(self._broker, self._layout), self._stop, self._say, self._broker_started
                )
            )
            tasks.create_task(keep_running(observer, self._stop, self._say, self._observer_started))
            if self._options.watch:
                tasks.create_task(self._follow(first))
            if self._options.scheduled:
                tasks.create_task(self._analyse_on_schedule())

    async def _broker_started(self, pid: int) -> None:
        """Declare the topology, then report that clients can connect."""
        await self._declare()
        self._note("broker", pid)
        if not self._told:
            self._told = True
            self._tell_clients()

    async def _declare(self) -> int:
        """Declare what the manifests say now; tell what is new, and return how many declarations were refused."""
        topology = declared(self._manifests)
        prune = self._options.prune
        outcomes = await declarations.declare(self._layout.management, topology, READY_SECONDS, prune=prune)
        for outcome in outcomes:
            if outcome.is_news or not self._told:
                self._say(str(outcome))
        return sum(isinstance(each, declarations.Declaration) and not each.answer.is_success for each in outcomes)

    async def _follow(self, first: FolderState) -> None:
        """Declare again whenever the manifests have changed; what is wrong in them changes nothing."""
        folder = self._options.folder
        async for _ in changes(lambda: folder_state(folder), first, self._stop):
            try:
                manifests = read(folder)
            except Misuse as wrong:
                self._say(f"{wrong.cause}\nThe broker keeps what it has.")
                continue
            if manifests.broker.spec != self._broker.spec:
                self._say(f"Broker {self._broker.key} has changed: end this command and start it again to apply that.")
            self._manifests = replace(manifests, broker=self._broker)
            try:
                refused = await self._declare()
            except Failure as failure:  # the broker has died: its next start declares them
                self._say(str(failure))
            else:
                but = f", but {refused} of them {'was' if refused == 1 else 'were'} refused" if refused else ""
                self._say(f"the manifests have changed and are declared{but}")

    def _tell_clients(self) -> None:
        who = "guest/guest, or without a name" if is_open(self._broker) else "as spec.authentication says"
        if commands.serves_plain(self._broker):
            self._say(f"clients connect to amqp://{self._endpoints.amqp} ({who})")
            socket = shlex.quote(f"unix:{self._layout.management}")
            self._say(f"waiting messages: penstock subscriptions list --broker {socket}")
        if self._endpoints.amqps is not None:
            ca = trusted(self._broker, self._options.folder, self._layout)
            trust = "" if ca is None else f" (server certificate for {HOST}, signed by the CA in {ca})"
            self._say(f"clients with a certificate connect to amqps://{self._endpoints.amqps}{trust}")

    async def _observer_started(self, pid: int) -> None:
        await observer_client.wait_until_serving(self._endpoints.observer_url, READY_SECONDS)
        self._note("observer", pid)
        self._say(f"observer serves {self._endpoints.observer_url} (token in {self._layout.token})")
        page = f"{self._endpoints.observer_url}{observer_api.PAGE}/"
        self._say(f"the page on lag: {page} (log in with the token in {self._layout.token})")
        lag = commands.lag_child(self._broker, self._endpoints, self._layout, "by-hand")
        self._say(f"lag at any time: penstock {shlex.join(lag.command[len(commands.PENSTOCK) :])} --table")

    def _note(self, name: str, pid: int) -> None:
        """Update `up.json`; it has a child's process id as soon as the child can be used."""
        self._pids[name] = pid
        state = {"observer": self._endpoints.observer_url, "management": f"unix:{self._layout.management}"}
        if commands.serves_plain(self._broker):
            state["amqp"] = self._endpoints.amqp
        if self._endpoints.amqps is not None:
            state["amqps"] = self._endpoints.amqps
        self._layout.write_state({**state, "pids": dict(self._pids)})

    async def _analyse_on_schedule(self) -> None:
        """Run the lag job every `intervalMinutes`, the first time one interval after the start."""
        analysis = self._broker.spec.lag_analysis
        if analysis.suspend or analysis.backend == "None":
            return
        while not self._stop.is_set():
            try:
                async with asyncio.timeout(analysis.interval_minutes * 60):
                    await self._stop.wait()
            except TimeoutError:
                await self._analyse()

    async def _analyse(self) -> None:
        run_name = f"{self._broker.metadata.name}-lag-{int(time.time())}"
        child = commands.lag_child(self._broker, self._endpoints, self._layout, run_name)
        code = await run_once(child, self._stop)
        if code == 0:
            try:
                result = await observer_client.latest_result(self._endpoints.observer_url, self._layout.token)
            except OSError as error:  # the observer has died since: its next start has the result
                self._say(f"lag run {run_name} is done; its result can't be read from the observer: {error}.")
            else:
                self._say(as_table(result).rstrip())
        elif code is not None:
            self._say(f"lag run {run_name} failed with code {code}; the broker is not affected.\n{tail(child.log)}")
