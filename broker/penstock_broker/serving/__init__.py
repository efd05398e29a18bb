"""The loop and what it drives: connections, their log-ins and events, probes."""
