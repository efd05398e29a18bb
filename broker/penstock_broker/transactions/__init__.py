"""Local transactions: what their links ask, what was done in them, and how they end."""
