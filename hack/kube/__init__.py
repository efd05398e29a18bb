"""The parts behind hack/cluster and hack/images: a real one-node Kubernetes and the images that run in it.

Standard library only, for these run before anything is installed.
"""
