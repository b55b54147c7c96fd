//go:build tools

// Package peers names what is built from this module: Kueue itself, at the version of go.mod.
package peers

import _ "sigs.k8s.io/kueue/cmd/kueue"
