"""The client that asks `$management` and waits for answers."""
