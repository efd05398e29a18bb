"""What the broker knows while it runs: `broker.Broker` and the records below it."""
