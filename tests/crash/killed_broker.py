"""The broker under test, as a process: `python -m crash.killed_broker DATA FILES READY_FILE TALLY`.

FILES is aio, counted, lossy, forgetful, points or lossy-points: the file layer under the log.
"""

import logging
import sys
from pathlib import Path

from broker.log.crash_points import PointFiles
from crash.lossy_files import CountingFiles, LossyFiles, Tally

from penstock_broker import main
from penstock_broker.log import FileLayer
from penstock_broker.settings.settings import BrokerSettings, ListenerSettings, LogSettings

SEGMENT_BYTES = 4 * 1024 * 1024
POINTED_SEGMENT_BYTES = 1024 * 1024
"""So that the points of a segment's life are passed more often."""


def files_for(kind: str, tally: Tally) -> FileLayer | None:
    """The file layer under the log; None is the broker's own, which syncs by Linux AIO where it can."""
    match kind:
        case "aio":
            return None
        case "counted":
            return CountingFiles(tally)
        case "lossy":
            return LossyFiles(tally)
        case "forgetful":
            return LossyFiles(tally, forgetful=True)
        case "points":
            return PointFiles(CountingFiles(tally), tally.reached)
        case "lossy-points":
            return PointFiles(LossyFiles(tally), tally.reached)
        case _:
            raise ValueError(kind)


def run(data: Path, kind: str, ready: Path, tally: Path) -> int:
    settings = BrokerSettings(
        listeners=(ListenerSettings(address="127.0.0.1:0"),),
        log=LogSettings(segment_bytes=POINTED_SEGMENT_BYTES if "points" in kind else SEGMENT_BYTES),
        max_message_bytes=1024 * 1024,
    ).for_dev()
    return main.serve(settings, data, ready_file=ready, files=files_for(kind, Tally(tally)))


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    _, data, kind, ready, tally = sys.argv
    sys.exit(run(Path(data), kind, Path(ready), Path(tally)))
