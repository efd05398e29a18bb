"""The broker under test, as a process that `support.broker_forks` forks. On SIGUSR1 it writes where it is to its
standard error.
"""

import faulthandler
import signal
from pathlib import Path

from broker.log.crash_points import PointFiles
from crash.lossy_files import CountingFiles, FailingFiles, LossyFiles, Tally
from crash.work_count import count_work, page_early

from penstock_broker import main
from penstock_broker.log import FileLayer
from penstock_broker.settings.settings import BrokerSettings, ListenerSettings, LogSettings


def files_for(kind: str, tally: Tally) -> FileLayer | None:
    """The file layer under the log, by its name; None is the broker's own, which syncs by Linux AIO where it can."""
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


def run(*, data: Path, files: str, ready_file: Path, tally: Path, segment_bytes: int, pages_early: bool) -> int:
    """Serve until it is killed; `files` is for `files_for`. With `pages_early` it pages small backlogs."""
    faulthandler.register(signal.SIGUSR1)
    kept = Tally(tally)
    count_work(kept)
    if pages_early:
        page_early()
    settings = BrokerSettings(
        listeners=(ListenerSettings(address="127.0.0.1:0"),),
        log=LogSettings(segment_bytes=segment_bytes),
        max_message_bytes=1024 * 1024,
    ).for_dev()
    return main.serve(settings, data, ready_file=ready_file, files=files_for(files, kept))
