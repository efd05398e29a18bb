"""Segments are found, their blocks are checked, and it is decided where the log ends and what is damaged."""
