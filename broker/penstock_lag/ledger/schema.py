"""Spark schemas: the ledger's, derived from the contract, and the names of key columns.

Source: penstock_api.ledger_format. Every field may be null for Spark: a Python data source can't promise otherwise.
"""

from __future__ import annotations

from typing import Final, assert_never

from pyspark.sql.types import ArrayType, BooleanType, DataType, LongType, StringType, StructField, StructType

from penstock_api.ledger_format import COLUMNS, ColumnType

__all__ = ["LEDGER", "QUEUE", "REQUIRED"]

QUEUE: Final = ("ordinal", "queue_name")
"""What identifies one subscription's queue among all brokers of a run."""


def _spark(kind: ColumnType) -> DataType:
    match kind:
        case ColumnType.TEXT:
            return StringType()
        case ColumnType.LONG:
            return LongType()
        case ColumnType.FLAG:
            return BooleanType()
        case ColumnType.LONGS:
            return ArrayType(LongType())
        case _:
            assert_never(kind)


LEDGER: Final = StructType([StructField(column.name, _spark(column.type)) for column in COLUMNS])
"""Every column of the ledger in file order."""

REQUIRED: Final = tuple(column.name for column in COLUMNS if not column.nullable)
"""A row without one of these is of no ledger."""
