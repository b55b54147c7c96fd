"""Status conditions, their transition times, their messages and their events; shared by runs and campaigns.

Conditions follow the Kubernetes API conventions (metav1.Condition). `lastTransitionTime` changes only when `status`
changes; reason and message may change in between. A condition must not depend on how much time has passed: otherwise
every reconciliation would write a new status, and each write would trigger the next reconciliation.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, TypeVar

from pydantic_core import to_json

from specbench_api.api_model import ApiModel
from specbench_api.spec.campaign_status import CampaignConditionType, CampaignStatus
from specbench_api.spec.conditions import ConditionStatus, ConditionType
from specbench_api.spec.status import Condition, RunStatus
from specbench_operator.state.run import NORMAL, WARNING, KubernetesEvent
from specbench_operator.state.timestamps import format_timestamp

# Limits of metav1.Condition: the API server rejects longer texts.
MESSAGE_MAX = 4096
REASON_MAX = 128
UNFINISHED = "NotFinished"
"""Reason of a condition that is Unknown until the run or the round has ended."""

NAMED_MAX = 3
"""Maximum number of runs that a message names."""

Status = RunStatus | CampaignStatus
StatusT = TypeVar("StatusT", RunStatus, CampaignStatus)
ConditionT = TypeVar("ConditionT", bound=Condition)
KindT = TypeVar("KindT", bound=StrEnum)


def read_status(status_class: type[StatusT], resource: Mapping[str, Any]) -> StatusT:
    """The status as it was last written. An invalid status counts as empty, because it is only a cache.

    Another version may have written fields and conditions that this one does not know; they are left out.
    """
    status = {**(resource.get("status") or {})}
    try:
        status["conditions"] = [
            row for row in status.get("conditions", ()) if row["type"] in _CONDITION_TYPES[status_class]
        ]
        return status_class.from_untrusted_json(to_json(status))
    except (KeyError, TypeError, ValueError):
        return status_class()


_CONDITION_TYPES: Mapping[type[ApiModel], frozenset[str]] = {
    RunStatus: frozenset(ConditionType),
    CampaignStatus: frozenset(CampaignConditionType),
}


def generation_of(resource: Mapping[str, Any]) -> int:
    """The generation of a resource's spec, also of one that cannot be parsed."""
    return int(resource["metadata"].get("generation", 0))


@dataclass(frozen=True)
class ConditionValue:
    """A condition without its times."""

    status: ConditionStatus
    reason: str
    message: str = ""


def yes(reason: str, message: str = "") -> ConditionValue:
    """A condition that is True."""
    return ConditionValue(ConditionStatus.TRUE, reason, message)


def no(reason: str, message: str = "") -> ConditionValue:
    """A condition that is False."""
    return ConditionValue(ConditionStatus.FALSE, reason, message)


def unknown(reason: str, message: str = "") -> ConditionValue:
    """A condition that is Unknown."""
    return ConditionValue(ConditionStatus.UNKNOWN, reason, message)


def tool_values(
    kinds: type[KindT],
    phase: str,
    reason: str,
    message: str,
    *,
    ready: bool = False,
    reconciling: bool = False,
    stalled: bool = False,
) -> dict[KindT, ConditionValue]:
    """The conditions that tools read. `phase` is the reason of one that is False, except of Ready.

    They are as kstatus (and so Argo CD and Flux) interprets them; Reconciling and Stalled are never both True.
    """
    holds, otherwise = yes(reason, message), no(phase)
    return {
        kinds("Ready"): holds if ready else no(reason, message),
        kinds("Reconciling"): holds if reconciling else otherwise,
        kinds("Stalled"): holds if stalled else otherwise,
    }


def with_transition_times(
    condition_class: type[ConditionT],
    values: Mapping[KindT, ConditionValue],
    previous: Status,
    generation: int,
    now: datetime,
) -> list[ConditionT]:
    """The conditions with their times, in the order of their enumeration; a time is kept until the status changes."""
    return [
        condition_class.model_validate(
            {
                "type": kind,
                "status": values[kind].status,
                "reason": to_reason(values[kind].reason),
                "message": values[kind].message[:MESSAGE_MAX],
                "last_transition_time": _transition_time(previous, kind, values[kind].status, now),
                "observed_generation": generation,
            }
        )
        for kind in _in_order(values)
    ]


def replace_conditions(
    condition_class: type[ConditionT],
    values: Mapping[KindT, ConditionValue],
    previous: Status,
    generation: int,
    now: datetime,
) -> list[ConditionT]:
    """All conditions of the previous status, with those in `values` replaced and moved to the end."""
    unchanged = [row for row in previous.conditions if isinstance(row, condition_class) and row.type not in values]
    return [*unchanged, *with_transition_times(condition_class, values, previous, generation, now)]


def find_condition(status: Status, kind: StrEnum) -> Condition | None:
    """The condition of this type, or None."""
    return next((row for row in status.conditions if row.type is kind), None)


def flipped_to(before: Status, after: Status, kind: StrEnum, status: ConditionStatus) -> Condition | None:
    """The condition of this type if it has this status after and had another status (or did not exist) before."""
    old, new = find_condition(before, kind), find_condition(after, kind)
    return new if new and new.status is status and (old is None or old.status is not status) else None


def flip_event(
    reason: str,
    before: Status,
    after: Status,
    kind: StrEnum,
    status: ConditionStatus,
    *,
    event_type: str = WARNING,
    prefix: str | None = None,
) -> Iterator[KubernetesEvent]:
    """Yield the event that a condition has this status now and had another one before.

    `reason`: that of the event; the condition's own if empty. `prefix`: the begin of the message.
    """
    if row := flipped_to(before, after, kind, status):
        known = find_condition(before, kind)
        occasion = f"{kind} {known.last_transition_time if known else ''}"
        message = row.message if prefix is None else join_sentences((prefix, row.message))
        yield KubernetesEvent(event_type, reason or row.reason, message, occasion)


def suspension_event(before: Status, after: Status) -> Iterator[KubernetesEvent]:
    """Yield the event that a run or a campaign was suspended or resumed."""
    if before.phase != after.phase and "Suspended" in (before.phase, after.phase):
        # Without the point in progress, which is another one when an operator that was killed here tries again.
        counts = after.progress.partition(" ")[0]
        yield KubernetesEvent(NORMAL, "Suspended" if after.phase == "Suspended" else "Resumed", counts)


def reason_of(status: Status, kind: StrEnum) -> str:
    """The reason of the condition of this type; empty if there is none."""
    row = find_condition(status, kind)
    return row.reason if row else ""


def list_names(names: Sequence[str]) -> str:
    """The first names for a message, and how many more there are."""
    more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
    return ", ".join(names[:NAMED_MAX]) + more


def to_reason(text: str) -> str:
    """Converts any string to a valid condition reason."""
    word = re.sub(r"[^A-Za-z0-9_]", "", text).rstrip("_")[:REASON_MAX]
    return word if word[:1].isalpha() else f"Reason{word}"


def join_sentences(parts: Iterable[str]) -> str:
    """The parts that are not empty, joined by colons; after a full stop, by a space."""
    return ": ".join(part.strip() for part in parts if part.strip()).replace(".: ", ". ")


def _in_order(values: Mapping[KindT, ConditionValue]) -> list[KindT]:
    return [kind for kinds in dict.fromkeys(type(kind) for kind in values) for kind in kinds if kind in values]


def _transition_time(previous: Status, kind: StrEnum, status: ConditionStatus, now: datetime) -> str:
    before = find_condition(previous, kind)
    return before.last_transition_time if before and before.status is status else format_timestamp(now)
