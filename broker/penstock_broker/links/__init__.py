"""Answers attaches, and ends links, subscriptions, queues and exchanges."""
