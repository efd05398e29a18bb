"""The loop and what it drives: connections, their events, probes."""
