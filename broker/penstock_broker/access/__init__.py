"""From a listening socket to an authenticated connection: listeners, logins, permissions and limits.

Must not know the broker's state: each class gets what it needs as arguments.
"""
