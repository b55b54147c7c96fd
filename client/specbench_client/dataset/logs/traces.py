"""An engine's trace: of each answer, how many tokens a step emits from each of its positions, by one or more drafters.

The form of "Performance or Illusion?": `prompt_token_ids`, `generated_token_ids`, and `acc_NAME: {"acc_len": […]}`, one
value an output position, accepted drafts + 1; position 0 is the prefill's. `acc_NAME` may hold `token_ids`, the answer
that it speaks of; without them nobody knows whether two drafters speak of the same text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from specbench_client.analysis.oracle.answers import Reach, Tokens
from specbench_client.analysis.oracle.told import Key, Told
from specbench_client.analysis.replay.lookup import Lookup
from specbench_client.analysis.replay.report import Logged, told_by_replay
from specbench_client.dataset.entries import rows_of
from specbench_client.dataset.logs.answers import OUTPUT_IDS, PROMPT_IDS
from specbench_client.dataset.logs.ids import category_of, first_of, id_of, whole_numbers
from specbench_client.errors import BadInput
from specbench_client.workload.rows import Row

_ANY = 2**31
_PREFIX, _LENGTHS, _OWN_IDS = "acc_", "acc_len", "token_ids"


ByKey = Mapping[Key, Told]


@dataclass(frozen=True)
class Traces:
    """Answers by drafter, and by their row."""

    source: str
    drafters: Mapping[str, ByKey]
    logged: Mapping[Key, Logged]
    """The rows' own token ids, where they have them."""

    def replayed(self, lookup: Lookup, like: str) -> dict[Key, Told]:
        """An n-gram drafter over the rows' own tokens, where they are as many as the other drafter's answer has."""
        whose = self.drafters[like]
        same = [key for key, each in self.logged.items() if key in whose and whose[key].tokens == each.output.size]
        return {key: told_by_replay(self.logged[key], lookup) for key in same}

    def with_proposals(self, lookup: Lookup, name: str) -> ByKey:
        """An n-gram drafter's answers with what it had to propose, which a trace does not tell, by replay.

        As they are where not every one can be replayed: then it is taken to draft at every step.
        """
        told, found = self.drafters[name], self.replayed(lookup, name)
        return {key: _proposing(each, found[key]) for key, each in told.items()} if len(found) == len(told) else told


def _proposing(told: Told, replayed: Told) -> Told:
    """What was accepted was proposed: the engine's own word counts more."""
    proposed = replayed.reach.drafts(_ANY)
    return replace(told, reach=replace(told.reach, proposed=np.maximum(proposed, told.reach.accepted)))


def read_traces(file: Path) -> Traces:
    """Every row. Raises BadInput where a row is no trace."""
    rows, _ = rows_of(file)
    names = drafters_in(rows)
    if not names:
        wanted = f'"{_PREFIX}NAME": {{"{_LENGTHS}": [1, 3, …]}}'
        raise BadInput(f"{file}: no row has {wanted}: is it a trace? for texts or token ids, see `specbench replay`")
    drafters: dict[str, dict[Key, Told]] = {name: {} for name in names}
    logged: dict[Key, Logged] = {}
    for number, row in enumerate(rows):
        key, where = (id_of(row.columns, row.place), 0, number), f"{file}, {row.place}"
        for name in names:
            drafters[name][key] = _told(row, where, name)
        ids = first_of(row.columns, OUTPUT_IDS)
        if ids:
            output = whole_numbers(row.columns, ids, where)
            logged[key] = Logged(key[0], category_of(row.columns), _prompt(row, where), output)
    return Traces(str(file), drafters, logged)


def drafters_in(rows: Sequence[Row]) -> list[str]:
    """The drafters that the first row tells of, in its order; empty where it is no trace."""
    first = rows[0].columns if rows else {}
    return [
        name.removeprefix(_PREFIX)
        for name, value in first.items()
        if name.startswith(_PREFIX) and isinstance(value, Mapping) and _LENGTHS in value
    ]


def _told(row: Row, where: str, name: str) -> Told:
    """Raises BadInput."""
    held: Any = row.columns.get(f"{_PREFIX}{name}")
    if not isinstance(held, Mapping) or held.get(_LENGTHS) is None:
        raise BadInput(
            f"{where}: has no {_PREFIX}{name}.{_LENGTHS}, which the first row has: give every row all of them"
        )
    emitted = whole_numbers(held, _LENGTHS, f"{where}, {_PREFIX}{name}", least=1)
    ids = whole_numbers(held, _OWN_IDS, f"{where}, {_PREFIX}{name}") if held.get(_OWN_IDS) is not None else None
    if ids is not None and ids.size != emitted.size:
        raise BadInput(
            f"{where}: {_PREFIX}{name} has {emitted.size} positions and {ids.size} token ids: they are one each"
        )
    size = int(_prompt(row, where).size)
    return Told(id_of(row.columns, row.place), category_of(row.columns), 0, size, Reach(emitted - 1), ids)


def _prompt(row: Row, where: str) -> Tokens:
    name = first_of(row.columns, PROMPT_IDS)
    if name is None:
        raise BadInput(f"{where}: has no {PROMPT_IDS[0]}: how long its context is cannot be told")
    return np.asarray(whole_numbers(row.columns, name, where))
