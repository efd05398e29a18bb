"""What the broker knows while it runs: `broker.Broker` and the records that hang below it."""
