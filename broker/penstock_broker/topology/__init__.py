"""What exists: exchanges, subscriptions, queues, and who is attached. Applies the decisions of `penstock_core`."""
