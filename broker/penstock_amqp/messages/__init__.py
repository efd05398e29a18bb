"""Encoded messages: looked at, changed at the head, written whole."""
