"""From ledger rows to figures: one DataFrame -> DataFrame step per module.

None of them collects or looks at a clock. ``figures`` is the one that puts them together.
"""
