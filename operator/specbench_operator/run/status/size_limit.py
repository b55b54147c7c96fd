"""Limits the size of a status to less than 100 kB, even with 1,000 points or 512 launches.

etcd rejects objects of more than 1.5 MB, and long before that every write is expensive for every watcher of runs. What
is also stored elsewhere is shortened first: messages are cut at the end, rows of finished groups repeat the counts,
and summary.json contains all rows of the results. Nothing that a decision needs is removed: while a run is in
progress, every group keeps its row with its state, launch number and reason.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Sequence

from specbench_api.spec.conditions import GroupState
from specbench_api.spec.status import ArmResult, RunStatus

STATUS_BYTES_MAX = 96_000
"""Maximum size of the status; the rest of the object and its managed fields are not included."""
ARMS_BYTES = 60_000
"""The part of it that is reserved for rows of results: about ninety rows."""
SHORT_MESSAGE = 128
SHORT_REASON = 20
"""At least as long as any reason that decides whether an arm is launched again (`group.ENGINE_FAULTS`)."""
_ESCAPED = re.compile("[<>&]")
_ESCAPE_MORE = 5
"""Additional bytes of each of these characters, which the API server stores as \\u003c and so on."""


def fit_to_size(status: RunStatus) -> RunStatus:
    """The status, shortened only as far as necessary. A status that fits is returned unchanged."""
    if json_size(status) <= STATUS_BYTES_MAX:
        return status
    rest = status.model_copy(update={"arms": []})
    room = STATUS_BYTES_MAX - min(json_size(status) - json_size(rest), ARMS_BYTES)
    for shorten in _STEPS:
        if json_size(rest) <= room:
            break
        rest = shorten(rest)
    return _drop_arms(rest.model_copy(update={"arms": status.arms}))


def json_size(status: RunStatus) -> int:
    """An upper bound of the bytes that the API server stores: characters beyond ASCII are counted as escaped."""
    return _bytes_of(status.to_dict())


def _bytes_of(data: object) -> int:
    text = json.dumps(data, separators=(",", ":"))
    return len(text) + _ESCAPE_MORE * len(_ESCAPED.findall(text))


def clip(text: str, most: int) -> str:
    """The longest beginning of a text whose JSON string has at most this many bytes."""
    text = text[:most]
    while _bytes_of(text) > most + 2:  # without the two quotes
        text = text[: len(text) - max((_bytes_of(text) - most) // 12, 1)]
    return text


def _short_group_messages(status: RunStatus) -> RunStatus:
    rows = [row.model_copy(update={"message": clip(row.message, SHORT_MESSAGE)}) for row in status.groups]
    return status.model_copy(update={"groups": rows})


def _without_done_groups(status: RunStatus) -> RunStatus:
    """Only for a run that has ended: before that, a row is all that is known of a group while S3 cannot be read."""
    if status.completion_time is None:
        return status
    rows = [row for row in status.groups if row.state is not GroupState.DONE]
    omitted = status.groups_omitted + len(status.groups) - len(rows)
    return status.model_copy(update={"groups": rows, "groups_omitted": omitted})


def _reasons_of_groups_alone(status: RunStatus) -> RunStatus:
    rows = [row.model_copy(update={"message": "", "reason": clip(row.reason, SHORT_REASON)}) for row in status.groups]
    return status.model_copy(update={"groups": rows})


def _conditions_within(most: int) -> Callable[[RunStatus], RunStatus]:
    def shorten(status: RunStatus) -> RunStatus:
        rows = [row.model_copy(update={"message": clip(row.message, most)}) for row in status.conditions]
        return status.model_copy(update={"conditions": rows})

    return shorten


def _drop_arms(status: RunStatus) -> RunStatus:
    """Keep as many rows of results as fit, in their order.

    Rows are chosen for each arm and workload in turn, from the lowest load upwards, so that the rows that a row is
    compared with are kept too.
    """
    room = STATUS_BYTES_MAX - json_size(status.model_copy(update={"arms": [], "arms_omitted": len(status.arms)}))
    kept = set[int]()
    for index in _round_robin(status.arms):
        room -= _bytes_of(status.arms[index].to_dict()) + 1
        if room < 0:
            break
        kept.add(index)
    rows = [row for index, row in enumerate(status.arms) if index in kept]
    omitted = status.arms_omitted + len(status.arms) - len(rows)
    return status.model_copy(update={"arms": rows, "arms_omitted": omitted})


def _round_robin(rows: Sequence[ArmResult]) -> list[int]:
    """Indices of the rows: the first rows of all pairs of arm and workload, then the second rows, and so on."""
    counts = Counter[tuple[str, str]]()
    turns = []
    for index, row in enumerate(rows):
        turns.append((counts[row.arm, row.workload], index))
        counts[row.arm, row.workload] += 1
    return [index for _, index in sorted(turns)]


_STEPS: tuple[Callable[[RunStatus], RunStatus], ...] = (
    _short_group_messages,
    _without_done_groups,
    _conditions_within(2048),
    _reasons_of_groups_alone,
    _conditions_within(256),
)
"""How everything except the results is shortened, in this order, each step only if those before it were not enough."""
