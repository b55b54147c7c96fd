"""Finding the stored run that the user means, and naming a run so that another command finds it."""

from __future__ import annotations

import shlex
from datetime import UTC, datetime
from pathlib import Path

from pydantic import ValidationError

from specbench_api.outcome.layout import PLAN, run_root
from specbench_api.outcome.provenance import LaunchRecord
from specbench_api.plan.plan import Plan
from specbench_client.cli.streams import echo
from specbench_client.errors import BadInput, NotDurable
from specbench_client.report.text.findings import points_are
from specbench_client.store.locations import open_store
from specbench_client.store.run_uids import uid_created_ms
from specbench_client.store.store import StoreErrorReason
from specbench_client.stored_runs.run import Run, runs_below


def select_run(where: str, *, latest: bool, ended: bool = False) -> Run:
    """Return the run at a folder or URI. Raises BadInput if there is none, or several without `latest`.

    `ended`: whether the newest run that has ended is meant, if any has. Newer ones are named on stderr.
    """
    store = open_store(where)
    if "://" not in where and not Path(where).expanduser().exists():
        raise BadInput(f"{where}: no such file or folder: give one that exists, or s3://BUCKET/PREFIX")
    if store.get(PLAN) is not None:
        return Run(store)
    runs = runs_below(store)
    if not runs:
        what = f"give a results folder, or a run's own folder in it, {run_root('NAMESPACE', 'NAME', 'UID')}"
        raise BadInput(f"{where}: contains no run (no {PLAN}): {what}")
    if len(runs) == 1:
        return runs[0]
    found = sorted(((_when(run), run) for run in runs), key=lambda each: each[0], reverse=True)
    if latest:
        # A run here that was interrupted before its first point has no results: an older run is meant. One on a cluster
        # that has launched an engine is in progress.
        answered = (
            run
            for _, run in found
            if not _is_damaged(run)
            and (
                run.count_measured() > 0
                or run.has_summary()
                or (not uid_created_ms(run.plan.uid) and run.store.keys("launches/"))
            )
        )
        passed = list[tuple[Run, str]]()
        for run in answered:
            unfinished = run.unfinished(stored=run.has_current_summary()) if ended else None
            if unfinished is None:
                for newer, why in passed:
                    echo(f"warning: {shown_path(newer.uri)} is passed over: {why}", err=True)
                return run
            passed.append((run, unfinished[0]))
        return passed[0][0] if passed else found[0][1]
    lines = [f"  {when or 'time unknown'}  {_state(run)}\n    {shown_path(run.uri)}" for when, run in found]
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


def _when(run: Run) -> str:
    """Return when the run was created, RFC 3339; of a run on a cluster, whose UID has no time, its last activity."""
    created = uid_created_ms(run.uri.rstrip("/").rpartition("/")[2])
    if created:
        return datetime.fromtimestamp(created / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    summary = run.intact_summary()
    if summary is not None:
        return f"{summary.created[:19]}Z"
    try:
        launches = [LaunchRecord.from_json(run.store.get(key) or b"") for key in run.store.keys("launches/")]
    except ValidationError:
        return ""
    return f"{max(each.queried_at for each in launches)[:19]}Z" if launches else ""


def _state(run: Run) -> str:
    """Return the progress and the headline of a run."""
    if _is_damaged(run):
        return "damaged, or written by another version  "
    summary = run.intact_summary()
    measured = run.count_measured()
    if summary and summary.decided_after is not None:  # What it could have measured no longer counts.
        return f"{measured} points  {summary.headline}"
    points, _, _ = points_are(run.plan, measured).rpartition(" ")
    return f"{points}  {summary.headline if summary else 'no summary yet'}"


def _is_damaged(run: Run) -> bool:
    """Return whether the plan or the summary cannot be read."""
    try:
        _ = run.plan
    except NotDurable as error:
        if error.reason != StoreErrorReason.DAMAGED:
            raise
        return True
    return run.has_summary() and run.intact_summary() is None
