"""`penstock up DIR`: a broker, its observer and its lag job from a folder of manifests, without Kubernetes."""
