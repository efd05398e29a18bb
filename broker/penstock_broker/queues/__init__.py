"""What waits: a queue, its order, and what its consumers have seen of it. Knows neither links nor the log."""
