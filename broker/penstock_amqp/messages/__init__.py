"""Encoded messages: reading single fields, changing headers and annotations, writing whole messages."""
