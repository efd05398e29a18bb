"""From a listening socket to an authenticated connection: listeners, lobby, log-ins, permissions and limits.

Must not know the broker's state: each class is told what it needs.
"""
