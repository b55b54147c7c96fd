"""Every launcher renders or refuses each field of a drafter: none is silently ignored."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from specbench_api.errors import InvalidSpec
from specbench_api.launch.supported_methods import DEFAULT_RELEASES, support_of
from specbench_api.spec.drafter import NEEDS_MODEL, TOKEN_MAPS, TREES, Drafter, Method
from specbench_api.spec.engine import EngineKind
from specbench_testing.planned_launches import launch_of

OF_EVERY_ARM = ("name", "method", "algorithm", "model", "numSpeculativeTokens", "tryTokens")
"""Fields that a method requires, that every drafter has, or that no launch sees."""
METHODS = tuple(method for method in Method if method is not Method.NONE)
FIELDS: dict[str, tuple[tuple[Method, ...], Any]] = {
    "revision": (NEEDS_MODEL, "2f1"),
    "draftLengths": (METHODS, [{"batchSize": 4, "tokens": 8}, {"batchSize": 64, "tokens": 2}]),
    "promptLookupMin": ((Method.NGRAM,), 2),
    "promptLookupMax": ((Method.NGRAM,), 5),
    "eagleTopk": (TREES, 4),
    "numDraftTokens": (TREES, 16),
    "tokenMap": (TOKEN_MAPS, "acme/map"),
    "draftTensorParallelSize": (METHODS, 2),
    "speculativeConfig": (METHODS, {"max_ngram": 7}),
    "args": (METHODS, ["--some-flag"]),
}
"""Field → methods that may have it, and a value that is no default."""
ENGINES = [kind for kind in EngineKind if kind not in (EngineKind.EXTERNAL, EngineKind.SIMULATOR)]
"""The simulator imitates engines, and takes a drafter of any of them."""
CASES = [
    (kind, method, field)
    for kind, (field, (methods, _)) in product(ENGINES, FIELDS.items())
    for method in methods
    if method is not Method.CUSTOM and support_of(kind, method, DEFAULT_RELEASES.get(kind)).supported
]


def test_all_fields_of_a_drafter_are_listed() -> None:
    assert {*OF_EVERY_ARM, *FIELDS} == {field.alias for field in Drafter.model_fields.values()}


@pytest.mark.parametrize(("kind", "method", "field"), CASES)
def test_a_field_is_rendered_or_refused(kind: EngineKind, method: Method, field: str) -> None:
    own = {"model": "acme/draft"} if method in (*NEEDS_MODEL, Method.DSPARK) else {}
    drafter = {"name": "d", "method": str(method), "numSpeculativeTokens": 8, **own}
    without = {"spec.engine.kind": str(kind), "spec.drafters[0]": drafter}
    edits = {**without, "spec.drafters[0]": {**drafter, field: FIELDS[field][1]}}
    try:
        assert launch_of(edits, "d") != launch_of(without, "d")
    except InvalidSpec as refused:
        assert all(each.path.startswith("spec.drafters[0].") for each in refused.problems)  # noqa: PT017
