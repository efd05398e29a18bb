// Package pinned holds the versions that kube-router is built from; the command itself is built by its import path.
package pinned
