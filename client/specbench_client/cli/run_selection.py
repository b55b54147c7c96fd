"""Finding the stored run that the user means, and naming a run so that another command finds it."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from pydantic import ValidationError

from specbench_api.outcome.layout import PLAN, SUMMARY, measured_among, run_root
from specbench_api.outcome.provenance import LaunchRecord
from specbench_api.outcome.summary import RunSummary
from specbench_api.plan.plan import Plan
from specbench_client.errors import BadInput
from specbench_client.local.local_runs import open_results
from specbench_client.store.run_uids import uid_created_ms
from specbench_client.store.store import Store
from specbench_client.stored_runs.stored_documents import run_roots


@dataclass(frozen=True)
class ListedRun:
    """A run and what can be read without its records. `when`: RFC 3339, empty if unknown."""

    root: str
    when: str
    engine_answered: bool
    """Whether an engine of this run ever answered a request: a launch or a point is stored."""
    progress: str
    headline: str


def select_run(where: str, *, latest: bool) -> Store:
    """Return the root of the run at a folder or URI. Raises BadInput if there is none, or several without `latest`."""
    if "://" not in where and not Path(where).exists():
        raise BadInput(f"{where}: no such file or folder: give one that exists, or s3://BUCKET/PREFIX")
    store = open_results(where)
    if store.get(PLAN) is not None:
        return store
    roots = run_roots(store)
    if not roots:
        raise BadInput(f"{where}: contains no run (no {PLAN}): give the folder that `specbench run --results` wrote to")
    if len(roots) == 1:
        return store.below(roots[0])
    found = sorted((_describe_run(store, root) for root in roots), key=lambda run: run.when, reverse=True)
    if latest:
        # A run whose engine could not be reached stores its plan and nothing else: an older run with results is meant.
        return store.below(next((run for run in found if run.engine_answered), found[0]).root)
    lines = [
        f"  {run.when or 'time unknown'}  {run.progress}  {run.headline}\n    {shown_path(store.uri(run.root))}"
        for run in found
    ]
    raise BadInput("\n".join([f"{where}: contains {len(found)} runs: give one of them, or add --latest:", *lines]))


def shown_path(uri: str) -> str:
    """Return a path relative to the working directory if it is below, else as it is; also a URI."""
    path, here = Path(uri), Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else uri.rstrip("/")


def run_arguments(plan: Plan, uri: str) -> str:
    """Return the shortest arguments with which other commands find the run at a folder or URI.

    That is the folder of all results and --latest, if the run is the newest there.
    """
    results = uri.rstrip("/").removesuffix(f"/{run_root(plan.namespace, plan.name, plan.uid)}")
    uids = [file.parent.name for file in Path(results).glob(run_root("*", "*", f"*/{PLAN}"))]
    # UIDs of a cluster contain no time.
    newest = plan.uid in uids and all(map(uid_created_ms, uids)) and max(uids, key=uid_created_ms) == plan.uid
    return f"{shlex.quote(shown_path(results))} --latest" if newest else shlex.quote(shown_path(uri))


def _describe_run(store: Store, root: str) -> ListedRun:
    run = store.below(root)
    created = uid_created_ms(root.rpartition("/")[2])
    when = datetime.fromtimestamp(created / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if created else ""
    try:
        plan, text = Plan.from_json(run.get(PLAN) or b""), run.get(SUMMARY)
        summary = RunSummary.from_json(text) if text else None
        when = when or _last_activity(run, summary)
    except ValidationError:
        return ListedRun(
            root, when, engine_answered=False, progress="damaged, or written by another version", headline=""
        )
    measured = len(measured_among(run.keys("points/"), (point.hash for point in plan.points)))
    headline = summary.headline if summary else "no summary yet"
    engine_answered = measured > 0 or bool(run.keys("launches/"))
    return ListedRun(root, when, engine_answered, f"{measured} of {len(plan.points)} points", headline)


def _last_activity(store: Store, summary: RunSummary | None) -> str:
    """Return when the summary was written, else the last engine launch: UIDs of a cluster contain no time."""
    if summary is not None:
        times = [summary.created]
    else:
        times = [LaunchRecord.from_json(store.get(key) or b"").queried_at for key in store.keys("launches/")]
    return f"{max(times)[:19]}Z" if times else ""
