"""From a listening socket to an authenticated connection: listeners, lobby, log-ins, permissions and limits."""
