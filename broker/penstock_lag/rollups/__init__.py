"""Hours and days of the ledger, and the history that they tell."""
