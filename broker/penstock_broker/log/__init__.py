"""The log, as the broker sees it. Everything else in here is private, the format included."""

from penstock_broker.log.blocks import NewerFormat
from penstock_broker.log.files import FileLayer, RealFiles
from penstock_broker.log.locking import FolderLocked
from penstock_broker.log.log import Log, RecordTooLarge, Settings
from penstock_broker.log.records import Document, Outcome
from penstock_broker.log.recovering import Damage, ForeignSegment, Recovered
from penstock_broker.log.replaying import Message
from penstock_broker.log.syncing import SyncChoice

__all__ = [
    "Damage",
    "Document",
    "FileLayer",
    "FolderLocked",
    "ForeignSegment",
    "Log",
    "Message",
    "NewerFormat",
    "Outcome",
    "RealFiles",
    "RecordTooLarge",
    "Recovered",
    "Settings",
    "SyncChoice",
]
