//go:build tools

// Package lws pins LeaderWorkerSet's controller, which tests build and run: `go install path@version` cannot, since the
// module proxy serves its versions and not their list.
package lws

import _ "sigs.k8s.io/lws/cmd"
