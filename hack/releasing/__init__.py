"""What hack/release and hack/charts are made of."""
