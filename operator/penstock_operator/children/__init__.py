"""Pure builders of the Kubernetes objects that belong to a Broker or an Exchange."""
