"""The broker under test, as a process: `python -m crash.killed_broker DATA FILES READY_FILE TALLY SEGMENT_BYTES PAGES`.

FILES is aio, counted, failing, failing-points, lossy, forgetful, points or lossy-points: the file layer under the log.
PAGES is `early` if it is to page small backlogs, or `late`. On SIGUSR1 it writes where it is to its standard error.
"""

import faulthandler
import logging
import signal
import sys
from pathlib import Path

from broker.log.crash_points import PointFiles
from crash.lossy_files import CountingFiles, FailingFiles, LossyFiles, Tally
from crash.work_count import count_work, page_early

from penstock_broker import main
from penstock_broker.log import FileLayer
from penstock_broker.settings.settings import BrokerSettings, ListenerSettings, LogSettings


def files_for(kind: str, tally: Tally) -> FileLayer | None:
    """The file layer under the log; None is the broker's own, which syncs by Linux AIO where it can."""
    match kind:
        case "aio":
            return None
        case "counted":
            return CountingFiles(tally)
        case "failing":
            return FailingFiles(tally)
        case "failing-points":
            return PointFiles(FailingFiles(tally), tally.reached)
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


def run(data: Path, kind: str, ready: Path, tally: Tally, segment_bytes: int) -> int:
    settings = BrokerSettings(
        listeners=(ListenerSettings(address="127.0.0.1:0"),),
        log=LogSettings(segment_bytes=segment_bytes),
        max_message_bytes=1024 * 1024,
    ).for_dev()
    return main.serve(settings, data, ready_file=ready, files=files_for(kind, tally))


if __name__ == "__main__":
    faulthandler.register(signal.SIGUSR1)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    _, data, kind, ready, path, segment_bytes, pages = sys.argv
    tally = Tally(Path(path))
    count_work(tally)
    if pages == "early":
        page_early()
    sys.exit(run(Path(data), kind, Path(ready), tally, int(segment_bytes)))
