"""Whether a broker syncs before it accepts: its system calls, counted by strace while one producer waits each time."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import tempfile
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from benching.brokers import Broker
from benching.load_client import run_load

__all__ = ["SyncCalls", "counted_calls", "sync_calls"]

TRACED = "fsync,fdatasync,sync_file_range,msync,io_submit"
CALL = re.compile(r"\b(fsync|fdatasync|sync_file_range|msync)\(|\bIOCB_CMD_(FD?SYNC)\b")
"""A call that begins, or an operation that is given to Linux AIO."""
O_DSYNC = 0o10000


class SyncCalls(NamedTuple):
    """What was seen."""

    accepted: int
    calls: dict[str, int]
    dsync_files: int
    """Open files of which every write is a sync."""
    flow_accepted: int
    flow_calls: int

    def __str__(self) -> str:
        named = ", ".join(f"{count:,} {name}" for name, count in sorted(self.calls.items())) or "no sync"
        total = sum(self.calls.values())
        if total >= 0.95 * self.accepted:
            verdict = "each accept waits for a sync"
        elif self.dsync_files:
            verdict = f"{self.dsync_files} files are open with O_DSYNC"
        else:
            verdict = "ACCEPTS WITHOUT A SYNC"
        per_sync = f"{self.flow_accepted / self.flow_calls:,.0f} messages" if self.flow_calls else "no sync"
        return f"{verdict}: {named} for {self.accepted:,} accepts in turn; at full speed {per_sync} per sync"


def counted_calls(trace: str) -> dict[str, int]:
    """From strace's lines: the calls that write to the disk what is in memory, by name; AIO's are `AIO FDSYNC`."""
    found = (name or f"AIO {operation}" for name, operation in CALL.findall(trace))
    return dict(Counter(found))


def sync_calls(broker: Broker, seconds: float) -> SyncCalls | str:
    """Look at a broker under load; a reason if that is not possible here."""
    if shutil.which("strace") is None:
        return "not looked at: there is no strace"
    waiting: dict[str, str | float] = {**broker.reached, **broker.queue, "window": 1, "warmup": 0, "seconds": seconds}
    with tempfile.TemporaryDirectory() as name:
        found = [_traced(broker, Path(name) / "trace", {**waiting, "window": window}) for window in (1, 1000)]
    for one in found:
        if isinstance(one, str):
            return one
    (accepted, calls), (flow_accepted, flow_calls) = [one for one in found if not isinstance(one, str)]
    return SyncCalls(accepted, calls, _dsync_files(broker), flow_accepted, sum(flow_calls.values()))


def _traced(broker: Broker, trace: Path, options: dict[str, str | float]) -> tuple[int, dict[str, int]] | str:
    command = ["strace", "-f", "-e", f"trace={TRACED}", "-o", str(trace)]
    for pid in broker.pids:
        command += ["-p", str(pid)]
    tracer = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert tracer.stderr is not None
        said = tracer.stderr.readline()
        if "attached" not in said:
            return f"not looked at: {said.strip()}"
        accepted = run_load(options).whole.accepted
    finally:
        tracer.send_signal(signal.SIGINT)
        tracer.communicate()
    return accepted, counted_calls(trace.read_text())


def _dsync_files(broker: Broker) -> int:
    flags = re.compile(r"^flags:\s+(\d+)$", re.MULTILINE)
    infos = [path.read_text() for pid in broker.pids for path in Path(f"/proc/{pid}/fdinfo").iterdir() if path.exists()]
    return sum(1 for info in infos if (found := flags.search(info)) and int(found[1], 8) & O_DSYNC)
