"""The stages of hack/test: what they run, and how they are run."""
