"""The log as the rest of the broker sees it. Everything else in this folder is private, and so is the format."""

from penstock_broker.log.append import RecordTooLarge
from penstock_broker.log.blocks import NewerFormat
from penstock_broker.log.bodies import LargePayload, StagedBody
from penstock_broker.log.commit import CommitAck, CommitPut
from penstock_broker.log.files import FileLayer, FolderLocked, RealFiles
from penstock_broker.log.log import Log, LogOptions
from penstock_broker.log.message_reader import Reading
from penstock_broker.log.record_reader import Progress
from penstock_broker.log.records import Document, EndReason
from penstock_broker.log.recover import Damage, ForeignSegment, Recovered
from penstock_broker.log.replay import LiveMessage
from penstock_broker.log.space import NoRoom
from penstock_broker.log.syncers import SyncChoice, Syncer

__all__ = [
    "CommitAck",
    "CommitPut",
    "Damage",
    "Document",
    "EndReason",
    "FileLayer",
    "FolderLocked",
    "ForeignSegment",
    "LargePayload",
    "LiveMessage",
    "Log",
    "LogOptions",
    "NewerFormat",
    "NoRoom",
    "Progress",
    "Reading",
    "RealFiles",
    "RecordTooLarge",
    "Recovered",
    "StagedBody",
    "SyncChoice",
    "Syncer",
]
