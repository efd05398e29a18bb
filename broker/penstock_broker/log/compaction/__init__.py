"""Acks and messages that are alive are written once more, so that old segments become free."""
