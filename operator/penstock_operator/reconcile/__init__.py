"""Carries out what the plans decide, on the API server and on the brokers."""
