"""Starts and stops a broker process: settings, log, recovery, listeners, loop. `penstock broker` calls `run`."""

from __future__ import annotations

import errno
import json
import logging
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator, Sequence, Set
from itertools import chain, count
from pathlib import Path
from types import FrameType
from typing import Final

from pydantic import ValidationError

import penstock_native
from penstock_api.failure import CannotRun, Failure, Misuse
from penstock_api.validation_messages import validation_messages
from penstock_broker.access import sockets
from penstock_broker.access.listeners import Listener, listeners_of
from penstock_broker.assembly import assemble
from penstock_broker.log import (
    FileLayer,
    FolderLocked,
    ForeignSegment,
    Log,
    LogOptions,
    NewerFormat,
    Recovered,
    Unreadable,
)
from penstock_broker.loop.garbage import collect_remains, start_without_collection
from penstock_broker.loop.loop import Loop
from penstock_broker.loop.probes import Probes, ProbeState
from penstock_broker.loop.start_probes import start_probes
from penstock_broker.loop.start_progress import StartProgress
from penstock_broker.messages import restore
from penstock_broker.messages.pageable import PageableMessages
from penstock_broker.settings import process_descriptors, settings, small_memory, small_volume
from penstock_broker.settings.process_memory import ProcessMemory, map_large_blocks, memory_limit
from penstock_broker.settings.settings import BrokerSettings
from penstock_broker.state.broker import Broker
from penstock_broker.state.storage import VolumeSpace
from penstock_core.memory_level import PROCESS_BYTES

__all__ = ["ADDRESSES_FILE", "announce", "run", "serve"]

logger = logging.getLogger(__name__)

ADDRESSES_FILE: Final = "addresses.json"
"""In the data folder: a JSON map from the name of each listener (and `probes`) to its address."""

SALT_FILE: Final = "salt.key"
"""In the data folder: random bytes that salt passwords given in plain text."""


def run(
    *,
    data: Path,
    listen: Sequence[str] = (),
    config: Path | None = None,
    dev: bool = False,
    management: str | None = None,
    observer_socket: Path | None = None,
    probes: str | None = None,
    ready_file: Path | None = None,
) -> int:
    """Serve until SIGTERM or SIGINT; return the exit code.

    `listen`: HOST:PORT of client listeners, in addition to those of the file `config`. `management`, `observer_socket`
    and `probes` replace what the file says. `ready_file`: the addresses are written there, too. Raises `Failure` and
    its subclasses.
    """
    given = settings.load(config) if config is not None else BrokerSettings()
    free = _free_names({each.name for each in given.listeners})
    listeners = (*given.listeners, *({"name": next(free), "address": address} for address in listen))
    update: dict[str, object] = {"listeners": listeners}
    if management is not None:
        update["management"] = {"address": management}
    if observer_socket is not None:
        update["observer_socket"] = observer_socket
    if probes is not None:
        update["probes"] = probes
    try:
        merged = BrokerSettings.model_validate({**given.model_dump(), **update})
    except ValidationError as error:
        wrong = "; ".join(validation_messages(error, whole="together"))
        raise Misuse(f"The options are wrong: {wrong}.", "See penstock broker --help.") from error
    if dev:
        merged = merged.for_dev()
        logger.warning("--dev: every client may connect, and queues are made when first used; not for production")
    if not merged.listeners:
        raise Misuse("The broker has nowhere to listen.", "Give --listen HOST:PORT, or listeners in the configuration.")
    return serve(merged, data, ready_file=ready_file)


def serve(given: BrokerSettings, data: Path, *, ready_file: Path | None = None, files: FileLayer | None = None) -> int:
    """Run one broker on a data folder. `files` replaces the file system under the log (crash tests)."""
    process_descriptors.raise_limit()
    map_large_blocks()
    salt = _salt_key(data)
    limit = memory_limit()
    given = _fitted(given, data, limit)
    listeners = listeners_of(given, salt)
    probe_port = sockets.bind(given.probes) if given.probes is not None else None
    progress = StartProgress(time.monotonic)
    with start_probes(probe_port, progress), start_without_collection():
        loop = _start(given, data, files, listeners, progress, limit)
    log = loop.broker.log
    addresses: dict[str, str] = {}
    if probe_port is not None:
        Probes(probe_port, loop, lambda: _probe_state(loop.broker, is_open=bool(addresses)))
    _stop_on_signals(loop)
    try:
        for listener in listeners:
            listener.bind()
        loop.accept_connections()
        addresses |= {listener.name: listener.bound for listener in listeners}
        if probe_port is not None:
            addresses["probes"] = sockets.bound(probe_port)
        announce(addresses, data / ADDRESSES_FILE, ready_file)
    except Failure:
        log.crash()  # nothing of this start is in the log: the next one finds what the last run left
        raise
    log.begin()  # from here on the epoch counts: clients that came meanwhile wait for the first turn
    try:
        loop.run()
        restore.record_losses(loop.broker.topology)
    finally:
        log.close()
        loop.close()
    if log.failed is not None:
        raise Failure(f"The log has failed: {log.failed}.", "Check the volume, then start the broker again.")
    return 0


def _probe_state(broker: Broker, *, is_open: bool) -> ProbeState:
    """What the probes answer in a turn of the loop. `is_open`: AMQP connections are accepted."""
    if not is_open or broker.is_stopping:
        return ProbeState(True, "turning", False, "AMQP is not open")
    failed = broker.log.failed
    ready = "open" if failed is None else f"open; durable work has stopped: {failed}"
    return ProbeState(True, "turning", True, ready)


def _start(
    given: BrokerSettings,
    data: Path,
    files: FileLayer | None,
    listeners: list[Listener],
    progress: StartProgress,
    limit: int,
) -> Loop:
    """The loop of a broker that holds what its log has kept. `limit`: bytes of memory that the process may have.

    A function of its own, so that `Recovered`, which refers to every message, is freed when it returns.
    """
    started = time.monotonic()
    log, recovered = _open_log(given, data, files, progress)
    collect_remains()
    try:
        loop = assemble(
            given,
            log,
            recovered,
            listeners,
            measure=lambda: _volume_space(data),
            process=ProcessMemory(),
            process_limit=limit,
            restored=progress.restoring,
        )
    except Failure:
        log.crash()
        raise
    logger.info("Recovery took %.2f s", time.monotonic() - started)
    _tell_memory(loop.broker.memory.budget, limit)
    _tell_descriptors(given.limits.connections)
    if penstock_native.absence:
        logger.warning(
            "Messages are carried by the engine in Python, about three times as slow as the compiled one: %s",
            penstock_native.absence,
        )
    return loop


def _tell_memory(budget: int, limit: int) -> None:
    logger.info("Messages may take %d bytes of memory, of %d that the process may have", budget, limit)
    if budget > limit - PROCESS_BYTES:
        logger.warning(
            "memory.maxBytes (%d) leaves the broker less than it needs of %d: lower it, or raise the container's "
            "memory limit; otherwise the system may end the broker",
            budget,
            limit,
        )


def _tell_descriptors(connections: int) -> None:
    most = process_descriptors.for_clients()
    if connections > most:
        logger.warning(
            "limits.connections (%d) is more than the process has file descriptors for (%d): further connections will "
            "wait; lower it, or raise the limit of open files",
            connections,
            most,
        )


def _salt_key(data: Path) -> bytes:
    """The random bytes that salt passwords; made with the data folder."""
    path = data / SALT_FILE
    try:
        data.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            hidden = path.with_name(f".{SALT_FILE}")
            hidden.unlink(missing_ok=True)
            with open(os.open(hidden, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(os.urandom(32))
            hidden.replace(path)
        return path.read_bytes()
    except OSError as error:
        raise CannotRun(f"The data folder {data} can't be used: {error}.", "Check its volume and owner.") from error


def _free_names(taken: Set[str]) -> Iterator[str]:
    """Names for the listeners of the command line: those that no listener of the file has."""
    named = chain(("amqp",), (f"amqp-{number}" for number in count(2)))
    return (name for name in named if name not in taken)


def _open_log(
    given: BrokerSettings, data: Path, files: FileLayer | None, progress: StartProgress
) -> tuple[Log, Recovered]:
    options = LogOptions(segment_bytes=given.log.segment_bytes)
    try:
        pageable = PageableMessages()
        return Log.open(
            data / "log", files=files, options=options, progress=progress.reading, pageable=pageable, begins=False
        )
    except FolderLocked as error:
        told = f"Another broker uses the data folder {data}: {error}."
        raise CannotRun(told, "Stop it, or name another folder.") from error
    except NewerFormat as error:
        raise CannotRun(f"The log in {data} can't be used: {error}.", "Start the Penstock that wrote it.") from error
    except (ForeignSegment, Unreadable) as error:
        cure = f"See what is there with `penstock log verify {data / 'log'}`, and docs/how-to/damaged-log.md."
        raise CannotRun(f"The log in {data} can't be used: {error}.", cure) from error
    except OSError as error:
        raise CannotRun(f"The data folder {data} can't be used: {error}.", "Check its volume and owner.") from error


def _fitted(given: BrokerSettings, data: Path, limit: int) -> BrokerSettings:
    """The settings with a log that the volume has room for, and frames that memory (`limit` bytes) has room for."""
    fitting = small_volume.fitted(given, _volume_space(data).total)
    if fitting is not given:
        logger.info("The log's segments have %d bytes, because the volume is small", fitting.log.segment_bytes)
    small = small_memory.fitted(fitting, limit)
    if small is not fitting:
        logger.info("Frames have at most %d bytes, because the process may have little memory", small.max_frame_bytes)
    return small


def _volume_space(data: Path) -> VolumeSpace:
    """The space of the data folder's volume, as `df` counts it: what is kept for root belongs to nobody here."""
    found = shutil.disk_usage(data)
    return VolumeSpace(total=found.used + found.free, free=found.free)


def _stop_on_signals(loop: Loop) -> None:
    """Stop the loop on SIGTERM and SIGINT, which reach it as bytes in a pipe."""
    reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)

    def ignore(_number: int, _frame: FrameType | None) -> None:
        """The byte that Python writes into the pipe is what the loop reads."""

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, ignore)

    def read() -> None:
        received = os.read(reader, 16)
        if any(number in (signal.SIGTERM, signal.SIGINT) for number in received):
            logger.info("Stopping")
            loop.stop()

    loop.watch(reader, read)


def announce(addresses: dict[str, str], *files: Path | None) -> None:
    """Write the addresses of the listeners to standard output and to files; raises `CannotRun` if that fails.

    If the volume is full it only warns: consumers have to connect, or the volume would stay full.
    """
    for path in files:
        if path is not None:
            try:
                hidden = path.with_name(f".{path.name}")
                hidden.write_text(json.dumps(addresses) + "\n")
                hidden.replace(path)
            except OSError as error:
                if error.errno in (errno.ENOSPC, errno.EDQUOT):
                    path.unlink(missing_ok=True)  # it holds the addresses of an earlier start
                    logger.warning("The volume is full: %s is not written", path)
                    continue
                told = f"The addresses can't be written to {path}: {error.strerror}."
                raise CannotRun(told, "Check the folder and its owner.") from error
    output: object = sys.stdout
    if output is None:  # it is closed, and the files tell
        return
    for name, address in addresses.items():
        sys.stdout.write(f"listening {name} {address}\n")
    sys.stdout.flush()
