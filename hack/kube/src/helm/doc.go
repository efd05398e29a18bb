// Package pinned holds the versions that the helm command is built from; the command itself is built by its import path.
package pinned
