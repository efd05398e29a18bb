"""The Kubernetes API and what the operator knows from it: API client, watch, cache, work queue, controller."""
