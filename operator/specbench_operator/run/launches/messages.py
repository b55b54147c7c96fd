"""What of the messages of pods may be repeated in status, events and logs.

An engine runs a program of the user's choice with the run's Secrets, and its last words are in its pod's status, which
more people can read than may read Secrets. Therefore messages are redacted, and the administrator may limit them to a
short excerpt, or to reason and exit code.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from specbench_api.fence.model import TerminationMessages
from specbench_api.plan.names import ROLE_ENGINE
from specbench_api.redaction import excerpt, redact
from specbench_operator.run.launches.launch_state import NEVER_STARTED_REASONS
from specbench_operator.settings import OperatorSettings
from specbench_operator.state.objects import ContainerTerminated, Pod

EXCERPT_MAX_CHARS: Mapping[TerminationMessages | None, int] = {
    None: 900,
    TerminationMessages.REDACTED: 400,
    TerminationMessages.NONE: 0,
}
"""Length of the excerpt of a program's last words. Status keeps 1,024 characters of a message, from its beginning."""


def with_safe_messages(pod: Pod, settings: OperatorSettings) -> Pod:
    """The pod with the messages that may be repeated.

    An engine's pod counts as foreign whatever its image: with specbench's own image it may run another command.
    The message of a client's pod is parsed first (`client.termination_of`).
    """
    foreign = pod.key.role == ROLE_ENGINE
    return replace(
        pod,
        message=redact(pod.message),
        disrupted=None if pod.disrupted is None else redact(pod.disrupted),
        unschedulable=None if pod.unschedulable is None else redact(pod.unschedulable),
        waiting=replace(pod.waiting, message=redact(pod.waiting.message)) if pod.waiting else None,
        terminated=_engine_end(pod.terminated, settings) if foreign and pod.terminated else pod.terminated,
        probe=replace(pod.probe, message=redact(pod.probe.message)) if pod.probe else None,
    )


def last_words(text: str, settings: OperatorSettings) -> str:
    """What of a program's own text may be repeated. It is redacted before it is cut, so that no part of a key is left.

    `settings.termination_messages` decides how much of it.
    """
    longest = EXCERPT_MAX_CHARS[settings.termination_messages]
    return excerpt(redact(text), longest) if longest else ""


def _engine_end(ended: ContainerTerminated, settings: OperatorSettings) -> ContainerTerminated:
    by_runtime = ended.reason in NEVER_STARTED_REASONS  # the container runtime's message: no program ran
    return replace(ended, message=redact(ended.message) if by_runtime else last_words(ended.message, settings))
