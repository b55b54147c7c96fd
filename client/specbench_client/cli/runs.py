"""Which run of several is meant: each with when it was, how far it came and what it found, the newest first."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from pydantic import ValidationError

from specbench_api.outcome.launched import Launched
from specbench_api.outcome.layout import PLAN, SUMMARY, measured_among
from specbench_api.outcome.summary import RunSummary
from specbench_api.plan.plan import Plan
from specbench_client.errors import BadInput
from specbench_client.local.place import open_results
from specbench_client.store.store import Store
from specbench_client.store.uids import made_ms


@dataclass(frozen=True)
class Stored:
    """A run's root, and what is known of it without reading its records. `when`: RFC 3339, empty where unknown."""

    root: str
    when: str
    progress: str
    verdict: str


def run_store(store: Store, where: str, *, latest: bool) -> Store:
    """The run's own root. Raises BadInput where there is none, or more than one to choose from."""
    if store.get(PLAN) is not None:
        return store
    roots = sorted({key.removesuffix(f"/{PLAN}") for key in store.keys("runs/") if key.endswith(f"/{PLAN}")})
    if not roots:
        raise BadInput(
            f"{where}: no run lies here (no {PLAN}): give the folder that `specbench run --results` wrote to"
        )
    if len(roots) == 1:
        return store.below(roots[0])
    found = sorted((_stored(store, root) for root in roots), key=lambda run: run.when, reverse=True)
    if latest:
        return store.below(found[0].root)
    lines = [
        f"  {run.when or 'when unknown'}  {run.progress}  {run.verdict}\n    {store.uri(run.root)}" for run in found
    ]
    raise BadInput("\n".join([f"{where}: {len(found)} runs lie here; choose one, or the newest by --latest:", *lines]))


def stored_run(where: str, *, latest: bool) -> Store:
    """The root of the run that lies at a folder or URI. Raises BadInput where nothing is there."""
    if "://" not in where and not Path(where).exists():
        raise BadInput(f"{where}: there is no such file or folder: give one, or s3://BUCKET/PREFIX")
    return run_store(open_results(where), where, latest=latest)


def _stored(store: Store, root: str) -> Stored:
    mine = store.below(root)
    made = made_ms(root.rpartition("/")[2])
    when = datetime.fromtimestamp(made / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if made else ""
    try:
        plan, summary = Plan.from_json(mine.get(PLAN) or b""), mine.get(SUMMARY)
        answer = RunSummary.from_json(summary) if summary else None
        when = when or _last_seen(mine, answer)
    except ValidationError:
        return Stored(root, when, "damaged, or of another version", "")
    measured = len(measured_among(mine.keys("points/"), (point.hash for point in plan.points)))
    verdict = answer.verdict if answer else "no answer yet"
    return Stored(root, when, f"{measured} of {len(plan.points)} points", verdict)


def _last_seen(store: Store, answer: RunSummary | None) -> str:
    """When the answer was written, or without one, the last engine launched: a cluster's UID does not tell when."""
    launches = [] if answer else store.keys("launches/")
    moments = [answer.created] if answer else [Launched.from_json(store.get(key) or b"").asked for key in launches]
    return f"{max(moments)[:19]}Z" if moments else ""
