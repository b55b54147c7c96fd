"""All runs that lie at some places read, and curves drawn over them. Reads everything, writes nothing."""

from __future__ import annotations

from collections.abc import Sequence

from specbench_api.outcome.curves import Curves, LeftOut
from specbench_api.outcome.layout import PLAN
from specbench_client.analysis.compare.result import Result
from specbench_client.analysis.curves.draw import curves
from specbench_client.drive.compared import read_result
from specbench_client.drive.options import Clock
from specbench_client.errors import BadInput, NotDurable
from specbench_client.store.store import Refusal, Store


def curves_in(stores: Sequence[Store], by: str, at: Sequence[float] = (), clock: Clock | None = None) -> Curves:
    """Draw curves over every run below these roots; each a run's own root, or a results root. Blocks.

    Raises BadInput where no run lies at one of them, NotDurable where a store does not answer. A run without an answer,
    and a damaged one, is left out with the reason.
    """
    results: list[Result] = []
    left_out: list[LeftOut] = []
    roots = {run.uri(): run for store in stores for run in _runs(store)}
    for uri, run in roots.items():
        try:
            results.append(read_result(run))
        except (BadInput, NotDurable) as error:
            if isinstance(error, NotDurable) and error.reason != Refusal.DAMAGED:
                raise
            left_out.append(LeftOut(what=uri, reason=str(error).removeprefix(f"{uri}: ")))
    return curves(by, results, left_out, (clock or Clock()).wall_text(), at)


def _runs(store: Store) -> list[Store]:
    """The runs below a root."""
    if store.get(PLAN) is not None:
        return [store]
    roots = sorted({key.removesuffix(f"/{PLAN}") for key in store.keys("runs/") if key.endswith(f"/{PLAN}")})
    if not roots:
        raise BadInput(
            f"{store.uri()}: no run lies here (no {PLAN}): give the folder that `specbench run --results` wrote to"
        )
    return [store.below(root) for root in roots]
