"""The format of the log: blocks, records and route sets, from bytes and to bytes."""
