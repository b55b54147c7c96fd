"""Where everything lies, in S3 and in a local folder alike (keys use `/`, relative to the results' root).

runs/NAMESPACE/NAME/UID/
  plan.json                                             what was to be done: arms, launches, points with their hashes
  progress.json                                         how far the launch at work is, while it works
  summary.json report.html results.csv                  the answer: for programs, for people, for spreadsheets
  gate.json                                             whether the run passed its gate, and the evidence
  power.csv                                             power samples that somebody gave to the run: time, device, watts
  provenance.json                                       what was observed: versions, prompts' fingerprints, launches
  launches/LAUNCH.json                                  what was seen of one launch of an engine, before its first point
  points/HASH/records/part-ATTEMPT-00000.parquet …      one row a request
  points/HASH/schedule-ATTEMPT.parquet                  open loops: when each conversation was to begin, and by whom
  points/HASH/summary.json                              where another attempt took that name: summary-ATTEMPT.json
  points/HASH/manifest.json                             last; without it there is no result
"""

from __future__ import annotations

from collections.abc import Iterable

PLAN = "plan.json"
PROVENANCE = "provenance.json"
SUMMARY = "summary.json"
REPORT = "report.html"
GATE = "gate.json"
POWER = "power.csv"
MANIFEST = "manifest.json"
POINT_SUMMARY = "summary.json"
LAUNCHES = "launches"


def run_root(namespace: str, name: str, uid: str) -> str:
    """Root of one run's results."""
    return f"runs/{namespace}/{name}/{uid}"


def launch_key(launch: str) -> str:
    """What was seen of one launch, below the run's root. The attempt is in its name: no two clients meet."""
    return f"{LAUNCHES}/{launch}.json"


def point_root(point_hash: str) -> str:
    """Root of one point, below the run's."""
    return f"points/{point_hash}"


def manifest_key(point_hash: str) -> str:
    """The point's manifest, below the run's root."""
    return f"{point_root(point_hash)}/{MANIFEST}"


def summary_key(point_hash: str, attempt: str | None = None) -> str:
    """The point's summary, below the run's root; with an attempt, its name where the plain one is taken."""
    return f"{point_root(point_hash)}/{POINT_SUMMARY if attempt is None else f'summary-{attempt}.json'}"


def part_key(point_hash: str, attempt: str, number: int) -> str:
    """One part of the point's records. The attempt is in the name: a retry never meets an older part."""
    return f"{point_root(point_hash)}/records/part-{attempt}-{number:05d}.parquet"


def schedule_key(point_hash: str, attempt: str) -> str:
    """When an open loop's conversations were to begin; stored before they did."""
    return f"{point_root(point_hash)}/schedule-{attempt}.parquet"


def hash_of_manifest(key: str) -> str | None:
    """The point whose manifest this key is, or None."""
    parts = key.split("/")
    is_manifest = len(parts) == 3 and parts[0] == "points" and parts[2] == MANIFEST
    return parts[1] if is_manifest else None


def measured_among(keys: Iterable[str], wanted: Iterable[str]) -> set[str]:
    """Which of the wanted points have a manifest among these keys (below the run's root)."""
    found = {hash_of_manifest(key) for key in keys}
    return {point for point in wanted if point in found}
