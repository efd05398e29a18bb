"""The event loop: one turn after another, the connections that it serves, their events, and the probe port."""
