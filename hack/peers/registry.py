"""The table of third-party programs that tests run."""

from __future__ import annotations

from collections.abc import Mapping

from peers.go_program import GoProgram

PEERS: Mapping[str, GoProgram] = {
    peer.name: peer
    for peer in (
        GoProgram("kwok", "kwok", "sigs.k8s.io/kwok/cmd/kwok", 176),
        GoProgram("kstatus", "health/flux", "./kstatus", 23),
        GoProgram("lws", "lws", "sigs.k8s.io/lws/cmd", 260),
        GoProgram("healthchecks", "health/flux", "./healthchecks", 60),
        GoProgram("argo", "health/argo", ".", 300),
        GoProgram("actionlint", "github.com/rhysd/actionlint", "cmd/actionlint", 40, "v1.7.12"),
        GoProgram("promtool", "promtool", "github.com/prometheus/prometheus/cmd/promtool", 200),
        GoProgram("kueue", "kueue", "sigs.k8s.io/kueue/cmd/kueue", 300),
    )
}
