"""Clients on their way in: listening sockets, who may log in, and the connection itself."""
