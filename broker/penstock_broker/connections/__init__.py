"""One client: its listening socket, its place in the lobby, what it logs in with, its connection and bare links."""
