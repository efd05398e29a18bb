"""A process that may open no more files keeps its log: on the real file system, by the system's own limit."""

import subprocess
import sys
from pathlib import Path

import pytest

from penstock_broker.log import Log, SyncChoice

STORY = """
import os, resource, sys
from pathlib import Path
from penstock_broker.log import Log, LogOptions, SyncChoice

log, _ = Log.open(Path(sys.argv[1]), options=LogOptions(segment_bytes=16384, sync=SyncChoice(sys.argv[2])))
incarnation = log.next_incarnation()
log.topology("queue", "q", b"", incarnation)
route = log.route_set((incarnation,))
log.write()
log.sync()
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
taken = []
try:
    while True:
        taken.append(os.open(os.devnull, os.O_RDONLY))
except OSError:
    pass
written = 0
while log.accepts_publishing():
    log.put(route, bytes(500), 0)
    log.write()
    log.maintain(1)
    log.sync()
    written += 1
assert log.failed is None, log.failed
for each in taken:
    os.close(each)
log.close()
print(written)
"""


@pytest.mark.parametrize("choice", [SyncChoice.INLINE, SyncChoice.THREAD])
def test_a_log_goes_on_with_the_segments_that_it_has(tmp_path: Path, choice: SyncChoice) -> None:
    command = [sys.executable, "-c", STORY, str(tmp_path), choice.value]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    log, recovered = Log.open(tmp_path)
    [messages] = recovered.messages.values()
    assert len(messages) == int(done.stdout) > 0
    log.close()
