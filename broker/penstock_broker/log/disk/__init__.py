"""The files of the log: what the operating system is asked for, and what was found damaged."""
