"""One queue: the order in which it hands out messages, its consumers, and its counters. Knows no sockets and no log."""
