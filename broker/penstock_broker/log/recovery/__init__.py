"""The start: records are read and replayed, and then it is known what is alive."""
