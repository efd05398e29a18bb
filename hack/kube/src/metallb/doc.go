// Package pinned holds the versions that MetalLB is built from; its commands are built by their import paths.
package pinned
