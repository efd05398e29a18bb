"""The `penstock` command: one verb per process, each imported when it is called."""
