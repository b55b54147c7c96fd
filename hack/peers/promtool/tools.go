// Package promtool pins Prometheus's tool that checks and tries out rules: the module has replace directives, so
// `go install path@version` cannot.
package promtool

import _ "github.com/prometheus/prometheus/cmd/promtool"
