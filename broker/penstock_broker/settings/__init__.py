"""The broker's configuration: the file's models, and how it is loaded."""
