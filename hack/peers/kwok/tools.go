//go:build tools

// Package kwok pins the programs that fake nodes need; nothing here is ever compiled into anything.
package kwok

import _ "sigs.k8s.io/kwok/cmd/kwok"
