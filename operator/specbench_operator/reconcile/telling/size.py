"""A status that stays small: 1,000 points or 512 launches, and still less than 100 kB.

etcd refuses an object beyond 1.5 MB, and long before that every watcher of every run pays for each write. What is
shortened first is what is told elsewhere: rows of groups that are done tell nothing that the counts do not, a message
has its beginning where the reason is, and summary.json has every row of the answer. Nothing that decides is ever lost:
while the run is at work every group keeps its row, its state, its launch and its reason.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Sequence

from specbench_api.spec.conditions import GroupState
from specbench_api.spec.status import ArmResult, RunStatus

STATUS_BYTES_MAX = 96_000
"""Of the whole status; the rest of the object and its field managers come on top."""
ARMS_BYTES = 60_000
"""Of them the answer's, where it needs as many: some ninety rows."""
SHORT_MESSAGE = 128
SHORT_REASON = 20
"""Longer than any reason of ours that decides whether an arm is launched again."""
_ESCAPED = re.compile("[<>&]")
_ESCAPE_MORE = 5
"""The API server writes these three as \\u003c and so on."""


def fitted(status: RunStatus) -> RunStatus:
    """The status, shortened only as far as it must be. What fits is returned as it is."""
    if size_of(status) <= STATUS_BYTES_MAX:
        return status
    rest = status.model_copy(update={"arms": []})
    room = STATUS_BYTES_MAX - min(size_of(status) - size_of(rest), ARMS_BYTES)
    for shorten in _STEPS:
        if size_of(rest) <= room:
            break
        rest = shorten(rest)
    return _fewer_arms(rest.model_copy(update={"arms": status.arms}))


def size_of(status: RunStatus) -> int:
    """Bytes of its JSON, never fewer than the API server stores: characters beyond ASCII are counted escaped."""
    return _bytes_of(status.to_dict())


def _bytes_of(data: object) -> int:
    text = json.dumps(data, separators=(",", ":"))
    return len(text) + _ESCAPE_MORE * len(_ESCAPED.findall(text))


def clipped(text: str, most: int) -> str:
    """The beginning of a text, as long as its JSON has no more than so many bytes."""
    text = text[:most]
    while _bytes_of(text) > most + 2:  # its quotes
        text = text[: len(text) - max((_bytes_of(text) - most) // 12, 1)]
    return text


def _short_group_messages(status: RunStatus) -> RunStatus:
    rows = [row.model_copy(update={"message": clipped(row.message, SHORT_MESSAGE)}) for row in status.groups]
    return status.model_copy(update={"groups": rows})


def _without_done_groups(status: RunStatus) -> RunStatus:
    """Only of a run that has ended: before that, a row is what is known of a group while S3 is away."""
    if status.completion_time is None:
        return status
    rows = [row for row in status.groups if row.state is not GroupState.DONE]
    omitted = status.groups_omitted + len(status.groups) - len(rows)
    return status.model_copy(update={"groups": rows, "groups_omitted": omitted})


def _reasons_of_groups_alone(status: RunStatus) -> RunStatus:
    rows = [
        row.model_copy(update={"message": "", "reason": clipped(row.reason, SHORT_REASON)}) for row in status.groups
    ]
    return status.model_copy(update={"groups": rows})


def _conditions_within(most: int) -> Callable[[RunStatus], RunStatus]:
    def shorten(status: RunStatus) -> RunStatus:
        rows = [row.model_copy(update={"message": clipped(row.message, most)}) for row in status.conditions]
        return status.model_copy(update={"conditions": rows})

    return shorten


def _fewer_arms(status: RunStatus) -> RunStatus:
    """As many rows as fit, in their old order.

    Each arm and workload in turn, from its first load upwards, so that a row keeps those that it is compared with.
    """
    room = STATUS_BYTES_MAX - size_of(status.model_copy(update={"arms": [], "arms_omitted": len(status.arms)}))
    kept = set[int]()
    for index in _in_turn(status.arms):
        room -= _bytes_of(status.arms[index].to_dict()) + 1
        if room < 0:
            break
        kept.add(index)
    rows = [row for index, row in enumerate(status.arms) if index in kept]
    omitted = status.arms_omitted + len(status.arms) - len(rows)
    return status.model_copy(update={"arms": rows, "arms_omitted": omitted})


def _in_turn(rows: Sequence[ArmResult]) -> list[int]:
    """Indices, the first row of each arm and workload before the second of any."""
    seen = Counter[tuple[str, str]]()
    turns = []
    for index, row in enumerate(rows):
        turns.append((seen[row.arm, row.workload], index))
        seen[row.arm, row.workload] += 1
    return [index for _, index in sorted(turns)]


_STEPS: tuple[Callable[[RunStatus], RunStatus], ...] = (
    _short_group_messages,
    _without_done_groups,
    _conditions_within(2048),
    _reasons_of_groups_alone,
    _conditions_within(256),
)
"""What is beside the answer is shortened in this order, each only where those before it were not enough."""
