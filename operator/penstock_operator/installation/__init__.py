"""What the hooks of the operator's chart ask: does the installation work, and may it be removed."""
