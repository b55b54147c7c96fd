"""Keys of all result files, the same in S3 and in a local folder (separated by `/`, relative to the results' root).

runs/NAMESPACE/NAME/UID/
  plan.json                                             the plan: arms, launches, points with their hashes
  progress.json                                         progress of the current launch, while it is running
  summary.json report.html results.csv                  the results: for programs, for people, for spreadsheets
  status.json                                           the results for the resource's status, and for which plan
  gate.json                                             whether the run passed its gate, and the evidence
  provenance.json                                       observed versions, fingerprints of the prompts, launches
  ended/GROUP-POINTS.json                               a group ended after so many points, by the plan's stop rule
  launches/LAUNCH.json                                  facts about one launch of an engine, before its first point
  points/HASH/records/0-ATTEMPT.parquet                 the records of one attempt, one row per request
  points/HASH/schedule-ATTEMPT.parquet                  open loops: scheduled start and worker of each conversation
  points/HASH/summary.json                              summary of the point; summary-ATTEMPT.json if it exists already
  points/HASH/manifest.json                             written last; without it the point has no result
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from pydantic import Field

PLAN = "plan.json"
PLAN_DIGEST_VARIABLE = "SPECBENCH_PLAN_DIGEST"
"""Environment variable of a client with the digest of its plan's text: somebody may replace the ConfigMap it is in."""
PROVENANCE = "provenance.json"
SUMMARY = "summary.json"
STATUS = "status.json"
"""What the operator reads of the results. Written after the summary."""
REPORT = "report.html"
GATE = "gate.json"
MANIFEST = "manifest.json"
POINT_SUMMARY = "summary.json"
LAUNCHES = "launches"
ENDED = "ended"

CHECKS = "specbench-check/"
"""Prefix of the objects that are written below the root of all results, beside `runs/`, to try the store."""
CHECK_OBJECT, CHECK_UPLOAD = f"{CHECKS}object", f"{CHECKS}upload"
CHECK_CONTENT = b"specbench wrote this object to check that results can be stored here\n"
"""Content of CHECK_OBJECT. It is always the same, and the object stays there."""
CONDITIONAL_WRITES_NEEDED = (
    "without conditional writes (If-None-Match: *), two clients overwrite each other's results: use another S3 server,"
    " or a newer version of it"
)

# Documents name points, launches and files. A stranger's document must not lead to files outside of its run.
_NAME = "[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}"
StorageName = Annotated[str, Field(pattern=f"^{_NAME}$")]
"""The hash of a point, a launch, an attempt, or a UID: one part of a key."""
StorageKey = Annotated[str, Field(pattern=f"^{_NAME}(/{_NAME})*$", max_length=1000)]
"""A key below a run's root: not absolute, and no part of it begins with a dot."""


def run_root(namespace: str, name: str, uid: str) -> str:
    """Return the root of one run's results."""
    return f"runs/{namespace}/{name}/{uid}"


def launch_key(launch: str) -> str:
    """Return the key of a launch's facts, below the run's root. The name includes the attempt and is unique."""
    return f"{LAUNCHES}/{launch}.json"


def ended_key(group: int, points: int) -> str:
    """Return the key that states that a group ended early, with this many measured points, below the run's root."""
    return f"{ENDED}/{group}-{points}.json"


def point_root(point_hash: str) -> str:
    """Return the root of one point, below the run's root."""
    return f"points/{point_hash}"


def manifest_key(point_hash: str) -> str:
    """Return the key of the point's manifest, below the run's root."""
    return f"{point_root(point_hash)}/{MANIFEST}"


def summary_key(point_hash: str, attempt: str | None = None) -> str:
    """Return the key of the point's summary, below the run's root; with `attempt`, for when the plain name is taken."""
    return f"{point_root(point_hash)}/{POINT_SUMMARY if attempt is None else f'summary-{attempt}.json'}"


def records_key(point_hash: str, attempt: str) -> str:
    """Return the key of the records of an attempt at a point, below the run's root."""
    return f"{records_prefix(point_hash)}0-{attempt}.parquet"


def records_prefix(point_hash: str) -> str:
    """Return the prefix of the records of all attempts at a point, below the run's root."""
    return f"{point_root(point_hash)}/records/"


def schedule_key(point_hash: str, attempt: str) -> str:
    """Return the key of an open loop's schedule, which is stored before the point starts."""
    return f"{point_root(point_hash)}/schedule-{attempt}.parquet"


def hash_of_manifest(key: str) -> str | None:
    """Return the hash of the point whose manifest has this key, or None if the key is not a manifest's."""
    parts = key.split("/")
    is_manifest = len(parts) == 3 and parts[0] == "points" and parts[2] == MANIFEST
    return parts[1] if is_manifest else None


def measured_among(keys: Iterable[str], points: Iterable[str]) -> set[str]:
    """Return those of the points (hashes) that have a manifest among the keys (below the run's root)."""
    found = {hash_of_manifest(key) for key in keys}
    return {point for point in points if point in found}
