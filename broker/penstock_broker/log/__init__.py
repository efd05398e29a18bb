"""The log, as the broker sees it. Everything else in here is private, the format included."""

from penstock_broker.log.blocks import NewerFormat
from penstock_broker.log.bodies import CommitAck, CommitPut, LargePayload, NoRoom, RecordTooLarge, StagedBody
from penstock_broker.log.files import FileLayer, RealFiles
from penstock_broker.log.files import FolderLocked
from penstock_broker.log.log import Log, Settings
from penstock_broker.log.records import Document, Outcome
from penstock_broker.log.recover import Damage, ForeignSegment, Recovered
from penstock_broker.log.replay import Message
from penstock_broker.log.syncers import SyncChoice

__all__ = [
    "CommitAck",
    "CommitPut",
    "Damage",
    "Document",
    "FileLayer",
    "FolderLocked",
    "ForeignSegment",
    "LargePayload",
    "Log",
    "Message",
    "NewerFormat",
    "NoRoom",
    "Outcome",
    "RealFiles",
    "RecordTooLarge",
    "Recovered",
    "Settings",
    "StagedBody",
    "SyncChoice",
]
