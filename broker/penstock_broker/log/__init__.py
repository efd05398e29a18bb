"""The log as the rest of the broker sees it. Everything else in this folder is private, and so is the format."""

from penstock_broker.log.append.appender import RecordTooLarge
from penstock_broker.log.append.commit import CommitAck, CommitPut
from penstock_broker.log.append.space import NoRoom
from penstock_broker.log.disk.damage import Damage
from penstock_broker.log.disk.files import (
    FileLayer,
    FolderLocked,
    ReadOnlyFiles,
    RealFiles,
    lock_folder,
    watch_folder,
)
from penstock_broker.log.disk.syncers import SyncChoice, Syncer
from penstock_broker.log.format.blocks import NewerFormat
from penstock_broker.log.format.puts import put_at
from penstock_broker.log.format.record_codec import document_bytes
from penstock_broker.log.format.records import VOLATILE, Document, EndReason, Put
from penstock_broker.log.inspection.log_inspection import Flaw, Inspection, inspect_log
from penstock_broker.log.inspection.record_dump import (
    ListedRecord,
    UnknownQueue,
    UnknownSegment,
    Value,
    Wanted,
    list_records,
)
from penstock_broker.log.inspection.repairs import NotSaved, Repair, carry_out, plan_repairs, plan_replacements
from penstock_broker.log.log import Log
from penstock_broker.log.options import LogOptions
from penstock_broker.log.recovery.bodies import LargePayload, StagedBody, bytes_in_log
from penstock_broker.log.recovery.live_messages import LiveMessage, PagedQueue
from penstock_broker.log.recovery.live_puts import KEEP, CommonStart, Pageable
from penstock_broker.log.recovery.paged_puts import LiveRun
from penstock_broker.log.recovery.record_reader import Progress
from penstock_broker.log.recovery.recover import Recovered
from penstock_broker.log.scan.segment_files import ForeignSegment, Unreadable
from penstock_broker.log.segments.put_block import PutBlock, Reading

__all__ = [
    "KEEP",
    "VOLATILE",
    "CommitAck",
    "CommitPut",
    "CommonStart",
    "Damage",
    "Document",
    "EndReason",
    "FileLayer",
    "Flaw",
    "FolderLocked",
    "ForeignSegment",
    "Inspection",
    "LargePayload",
    "ListedRecord",
    "LiveMessage",
    "LiveRun",
    "Log",
    "LogOptions",
    "NewerFormat",
    "NoRoom",
    "NotSaved",
    "Pageable",
    "PagedQueue",
    "Progress",
    "Put",
    "PutBlock",
    "ReadOnlyFiles",
    "Reading",
    "RealFiles",
    "RecordTooLarge",
    "Recovered",
    "Repair",
    "StagedBody",
    "SyncChoice",
    "Syncer",
    "UnknownQueue",
    "UnknownSegment",
    "Unreadable",
    "Value",
    "Wanted",
    "bytes_in_log",
    "carry_out",
    "document_bytes",
    "inspect_log",
    "list_records",
    "lock_folder",
    "plan_repairs",
    "plan_replacements",
    "put_at",
    "watch_folder",
]
