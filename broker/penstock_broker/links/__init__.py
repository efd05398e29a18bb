"""Answers opens and attaches, and ends links, subscriptions, queues and exchanges."""
