"""The ledger as a run reads it: which segments, from where, and their rows."""
