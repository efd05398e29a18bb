"""The audit of single messages: where each one went."""
