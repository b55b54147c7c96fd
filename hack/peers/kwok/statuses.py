"""The statuses that kwok's stages write, as its templates (Go's text/template, giving YAML).

A strategic merge takes conditions by their type and containers by their name, so only changes are included.
"""

from __future__ import annotations

from collections.abc import Sequence

_NOW = "{{ $now := Now }}"
_EACH, _END = "{{ range .spec.containers }}", "{{ end }}"
_SINCE = "(index $.status.containerStatuses 0).state.running.startedAt"

NODE_READY = """\
{{ $now := Now }}
phase: Running
conditions:
{{ range NodeConditions }}
- type: {{ .type | Quote }}
  status: {{ .status | Quote }}
  reason: {{ .reason | Quote }}
  message: {{ .message | Quote }}
  lastHeartbeatTime: {{ $now | Quote }}
  lastTransitionTime: {{ $now | Quote }}
{{ end }}
"""


def running(*, ready: bool) -> str:
    """The status of a pod whose containers run."""
    state = ["    running:", "      startedAt: {{ $now | Quote }}"]
    return _status("Running", state, ready=ready, pod=("startTime: {{ $now | Quote }}",))


def ended(code: int, reason: str) -> str:
    """The status of a pod whose containers exited or were killed."""
    state = [
        "    running: null",
        "    terminated:",
        f"      exitCode: {code}",
        f"      reason: {reason}",
        "      startedAt: {{ " + _SINCE + " | Quote }}",
        "      finishedAt: {{ $now | Quote }}",
    ]
    return _status("Failed", state, ready=False)


def _status(phase: str, state: Sequence[str], *, ready: bool, pod: Sequence[str] = ()) -> str:
    return "\n".join(
        (
            _NOW,
            f"phase: {phase}",
            *pod,
            "conditions:",
            *_condition("Initialized", holds=True),
            *_condition("ContainersReady", holds=ready),
            *_condition("Ready", holds=ready),
            "containerStatuses:",
            _EACH,
            "- name: {{ .name | Quote }}",
            "  image: {{ .image | Quote }}",
            "  imageID: ''",
            "  restartCount: 0",
            f"  ready: {str(ready).lower()}",
            "  state:",
            *state,
            _END,
        )
    )


def _condition(kind: str, *, holds: bool) -> tuple[str, ...]:
    return (f"- type: {kind}", f'  status: "{holds}"', "  lastTransitionTime: {{ $now | Quote }}")
