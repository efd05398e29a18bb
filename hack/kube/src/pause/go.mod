module penstock.dev/kube/pause

go 1.26.0
