"""A run's results in S3, read only by boto3 and pandas: our own reader could share the writer's mistakes."""

from __future__ import annotations

import hashlib
import io
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import boto3
import pandas as pd
import pyarrow.parquet as pq
from botocore.config import Config

from specbench_client.load.conversations import is_filler
from specbench_cluster.settings import S3
from specbench_testing.resources import Resource

BUCKET = "bench-results"
PROMPTS = 8
"""Prompts of a point, as set by `count`."""
_ROOT = Path(__file__).resolve().parents[3]


class StoredRun:
    """Everything below the root of one run."""

    def __init__(self, s3: S3, run: Resource) -> None:
        meta = run["metadata"]
        self._client = boto3.client(
            "s3",
            endpoint_url=s3.endpoint,
            region_name=s3.region,
            aws_access_key_id=s3.access_key,
            aws_secret_access_key=s3.secret_key,
            config=Config(s3={"addressing_style": "path"}, retries={"total_max_attempts": 1}, connect_timeout=2),
        )
        prefix = run["spec"]["results"]["s3"]["prefix"]
        self._root = f"{prefix}/runs/{meta['namespace']}/{meta['name']}/{meta['uid']}/"

    def versions(self, suffix: str = "") -> dict[str, str]:
        """Key → a version that differs between versions of the object."""
        pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=self._root)
        rows = [row for page in pages for row in page.get("Contents", [])]
        keyed = {row["Key"].removeprefix(self._root): f"{row['ETag']} {row['LastModified']}" for row in rows}
        return {key: version for key, version in keyed.items() if key.endswith(suffix)}

    def manifests(self) -> dict[str, str]:
        """Versions of the points' manifests."""
        return self.versions("/manifest.json")

    def read(self, key: str) -> bytes:
        """The content of an object."""
        return self._client.get_object(Bucket=BUCKET, Key=self._root + key)["Body"].read()

    def json(self, key: str) -> Any:
        """The parsed JSON object."""
        return json.loads(self.read(key))

    def records(self, arm: str) -> pd.DataFrame:
        """Rows of all points of the arm with a manifest, including warm-up and fillers."""
        manifests = [self.json(key) for key in self.manifests()]
        points = [one for one in manifests if self.json(f"points/{one['hash']}/summary.json")["arm"] == arm]
        return pd.concat(
            pd.read_parquet(io.BytesIO(self.read(row["key"])))
            for one in points
            for row in one["files"]
            if "records/" in row["key"]
        )

    def points(self) -> list[str]:
        """Hashes of the planned points."""
        return [point["hash"] for group in self.json("plan.json")["groups"] for point in group["points"]]

    def under_way(self) -> tuple[str, str] | None:
        """The attempt and the point that a client is measuring, once a request has ended; None if there is none."""
        progress = self.json("progress.json") if self.versions("progress.json") else {"phase": "starting"}
        if progress["phase"] != "measuring" or not progress["requestsDone"]:
            return None
        return progress["attempt"], progress["point"]

    def violations(self, points: list[str] | None = None) -> list[str]:
        """Violations of the rule that every planned point is measured once and completely."""
        expected = self.points() if points is None else points
        keys = set(self.versions())
        found = {key.split("/")[1] for key in keys if key.startswith("points/")}
        unplanned = [f"{point} is not planned" for point in found - set(self.points())]
        missing = [point for point in expected if f"points/{point}/manifest.json" not in keys]
        measured = [
            violation for point in expected if point not in missing for violation in self._violations_of(point, keys)
        ]
        return [*unplanned, *(f"{point} has no manifest" for point in missing), *measured]

    def _violations_of(self, point: str, keys: set[str]) -> Iterator[str]:
        manifest = self.json(f"points/{point}/manifest.json")
        named = {row["key"]: row for row in manifest["files"]}
        if manifest["hash"] != point:
            yield f"{point}: its manifest belongs to {manifest['hash']}"
        yield from (f"{key} differs from its manifest" for key, row in named.items() if not self._matches(key, row))
        stored = {key for key in keys if key.startswith(f"points/{point}/records/")}
        yield from (
            f"{key} belongs to the counted attempt but is not in the manifest"
            for key in stored - named.keys()
            if manifest["attempt"] in key
        )
        records = [key for key in named if "records/" in key]
        yield from _violations_of_rows(point, [row for key in records for row in self._rows(key)])

    def _matches(self, key: str, row: Mapping[str, Any]) -> bool:
        data = self.read(key)
        return (len(data), hashlib.sha256(data).hexdigest()) == (row["size"], row["sha256"])

    def _rows(self, key: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = pq.read_table(io.BytesIO(self.read(key))).to_pylist()
        return rows


def turns_of_prompts() -> dict[str, int]:
    """Turns of each prompt in the image's prompts file."""
    lines = (_ROOT / "examples/prompts.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    return {row["id"]: len(row["turns"]) if "turns" in row else 1 for row in rows}


def _violations_of_rows(point: str, rows: list[dict[str, Any]]) -> Iterator[str]:
    counted = Counter(
        (row["prompt_id"], row["turn"]) for row in rows if row["phase"] != "warmup" and not is_filler(row["prompt_id"])
    )
    prompts, turns = {prompt for prompt, _ in counted}, turns_of_prompts()
    if len(prompts) != PROMPTS:
        yield f"{point}: {len(prompts)} prompts instead of {PROMPTS}"
    expected = Counter((prompt, turn) for prompt in prompts for turn in range(turns[prompt]))
    if counted != expected:
        yield f"{point}: turns missing {expected - counted}, too many {counted - expected}"
    failed = [row["error_class"] for row in rows if row["error_class"]]
    if failed:
        yield f"{point}: requests failed: {failed}"
