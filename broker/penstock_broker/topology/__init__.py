"""What exists: exchanges, subscriptions, queues. Applies the decisions of `penstock_core`."""
