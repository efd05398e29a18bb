"""The event loop: its turns, the connections that it accepts and serves, their events, and the probe port."""
