"""The records of a turn are gathered, room is kept for them, and they leave as one block."""
