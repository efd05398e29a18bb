"""One module per verb: its options, and the import of the process behind it when it is called."""
