"""The client for the broker's `$management` node."""
