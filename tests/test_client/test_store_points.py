"""Records, summaries and manifests in a store."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import io
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from specbench_api.outcome.layout import manifest_key, summary_key
from specbench_api.plan.plan import Point
from specbench_api.spec.load import Level
from specbench_client.documents.arrival_pattern import ArrivalPattern
from specbench_client.documents.manifest import Manifest, PointProvenance, StoredFile
from specbench_client.documents.record import Record
from specbench_client.documents.summary import ClientHealth, PointSummary, RequestCounts
from specbench_client.errors import NotDurable
from specbench_client.store import records as records_module
from specbench_client.store.folder import FolderStore
from specbench_client.store.points import MeasurementSpan, PointStore
from specbench_client.store.records import (
    FILE_SCHEMA,
    RECORD_SCHEMA,
    RecordWriter,
    iter_tables,
    records_table,
)
from specbench_client.store.retrying import RetryingStore, RetryPolicy
from specbench_client.store.s3 import s3_client
from specbench_client.store.store import Store, StoreErrorReason
from specbench_testing.faulty_stores import InterferingStore, RejectingStore

POINT = "a" * 64
PLANNED = Point(hash=POINT, arm="none", workload="chat", level=Level(concurrency=1), repeat=0)
SPAN = MeasurementSpan(5, "2030-01-01T00:00:00.000Z", "2030-01-01T00:01:00.000Z")
OBSERVED = PointProvenance(dataset_fingerprint="f", prompts=3, client_version="0", launch="0-1")
FULL = Record(
    request_id="r0", prompt_id="q0", category="qa", conversation_id="q0#0", turn=0, repeat=0, phase="steady",
    stream_index=1, intended_ns=1, connect_ns=2, sent_ns=2, first_byte_ns=3, first_token_ns=4,
    last_token_ns=9_007_199_254_740_993, chunk_ns=[4, 5, 6], chunk_tokens=[1, 2, 3],
    chunk_coalesced=[False, False, True], timestamp_source="user",
    input_tokens=7, output_tokens=6, output_tokens_client=6,
    steps=3, draft_steps=2, drafted_tokens=6, accepted_tokens=3, step_accepted=[1, 2], acceptance_source="per_step",
    cached_tokens=0, finish_reason="stop", error_class=None, error=None, output_sha256="s",
)  # fmt: skip
FAILED = dataclasses.replace(
    FULL, request_id="r1", connect_ns=None, sent_ns=None, first_byte_ns=None, first_token_ns=None, last_token_ns=None,
    chunk_ns=None, chunk_tokens=None, chunk_coalesced=None, input_tokens=None, output_tokens=None,
    output_tokens_client=None, steps=None, draft_steps=None,
    drafted_tokens=None, accepted_tokens=None, step_accepted=None, acceptance_source=None, cached_tokens=None,
    finish_reason=None, error_class="refused", error="nobody listens", output_sha256=None, category=None,
)  # fmt: skip


def record(number: int) -> Record:
    return dataclasses.replace(FULL, request_id=f"r{number}", prompt_id=f"q{number}")


def prompts_of(points: PointStore, manifest: Manifest) -> list[str]:
    """Return the prompts of all records; reading them checks the files."""
    return [
        prompt
        for part in points.read_files(manifest.hash, manifest.files, ["prompt_id"])
        for prompt in part["prompt_id"].to_pylist()
    ]


def summary_of(requests: int = 1) -> PointSummary:
    return PointSummary(
        hash=POINT, arm="none", workload="chat", level=Level(concurrency=1),
        arrivals=ArrivalPattern(process="ClosedLoop"), repeat=0, simulated=True,
        counts=RequestCounts(requests=requests), figures={}, client_health=ClientHealth(),
    )  # fmt: skip


@pytest.fixture
def points(tmp_path: Path) -> PointStore:
    return PointStore(FolderStore(tmp_path / "results"))


@pytest.fixture
def writer(points: PointStore) -> Iterator[RecordWriter]:
    writer = points.open(PLANNED, "1-a")
    yield writer
    writer.abandon(5)


def commit_point(points: PointStore, attempt: str = "1-a", numbers: range = range(3)) -> Manifest:
    writer = points.open(PLANNED, attempt)
    for number in numbers:
        writer.add(record(number))
    return points.commit(summary_of(), attempt, [writer.finish()], SPAN, OBSERVED)


# -- columns -----------------------------------------------------------------------------------------------------------


def file_of(*records: Record) -> bytes:
    sink = io.BytesIO()
    pq.write_table(records_table(PLANNED, records), sink)
    return sink.getvalue()


def columns_of(file: bytes) -> dict[str, Any]:
    table = pa.concat_tables(iter_tables(io.BytesIO(file)))
    return {name: table[name].to_numpy() for name in table.column_names}


def test_file_columns_are_those_of_the_point_and_the_record_fields_in_order() -> None:
    assert RECORD_SCHEMA.names == [field.name for field in dataclasses.fields(Record)]
    assert FILE_SCHEMA.names == ["arm", "workload", "load", *RECORD_SCHEMA.names]
    assert str(RECORD_SCHEMA.field("chunk_ns").type) == "list<item: int64>"
    assert not RECORD_SCHEMA.field("intended_ns").nullable
    assert RECORD_SCHEMA.field("sent_ns").nullable


def test_record_round_trips_through_parquet_with_missing_values() -> None:
    columns = columns_of(file_of(FULL, FAILED))

    assert list(columns["request_id"]) == ["r0", "r1"]
    assert columns["last_token_ns"][0] == FULL.last_token_ns
    assert list(columns["step_accepted"][0]) == [1, 2]
    assert columns["cached_tokens"][0] == 0
    missing = [columns[name][1] for name in RECORD_SCHEMA.names if getattr(FAILED, name) is None]
    assert all(value is None or np.isnan(value) for value in missing)


@pytest.mark.process
def test_reading_a_file_starts_no_threads(tmp_path: Path) -> None:
    """Arrow's threads may release Python objects after the interpreter has exited and abort the process."""
    file = tmp_path / "records.parquet"
    file.write_bytes(file_of(FULL, FAILED))
    lines = [
        "import os, pathlib, sys",
        "from specbench_client.store.records import iter_tables",
        "before = len(os.listdir('/proc/self/task'))",
        "list(iter_tables(pathlib.Path(sys.argv[1]).open('rb')))",
        "print(len(os.listdir('/proc/self/task')) - before)",
    ]
    environment = {**os.environ, "PYTHONPATH": ":".join(sys.path)}
    call = [sys.executable, "-c", "\n".join(lines), str(file)]
    assert subprocess.run(call, env=environment, capture_output=True, text=True, check=True).stdout == "0\n"


def test_column_missing_in_an_older_file_is_read_as_missing() -> None:
    older = io.BytesIO()
    pq.write_table(records_table(PLANNED, [FULL]).drop_columns(["output_text"]), older)
    columns = columns_of(older.getvalue())
    assert list(columns) == RECORD_SCHEMA.names
    assert columns["output_text"].tolist() == [None]


# -- writing -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("upload_bytes", [100, 10**9], ids=["in parts", "in one request"])
def test_records_of_a_client_are_one_file_with_row_groups(
    upload_bytes: int, points: PointStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records_module, "GROUP_ROWS", 2)
    monkeypatch.setattr(records_module, "UPLOAD_BYTES", upload_bytes)
    writer = points.open(PLANNED, "1-a")
    for number in range(5):
        writer.add(record(number))

    listed = writer.finish()

    data = points.store.get(listed.key) or b""
    assert points.store.keys() == [listed.key] == [f"points/{POINT}/records/0-1-a.parquet"]
    assert (listed.rows, listed.size, listed.sha256) == (5, len(data), hashlib.sha256(data).hexdigest())
    groups = [list(table.column("request_id").to_pylist()) for table in iter_tables(io.BytesIO(data))]
    assert groups == [["r0", "r1"], ["r2", "r3"], ["r4"]]
    assert pq.read_table(io.BytesIO(data)).schema.equals(FILE_SCHEMA)


def test_a_client_without_records_has_an_empty_file(points: PointStore, writer: RecordWriter) -> None:
    listed = writer.finish()
    assert listed.rows == 0
    assert [table.num_rows for table in points.read_files(POINT, [listed])] == [0]


def test_long_answers_close_a_row_group_early(points: PointStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records_module, "GROUP_VALUES", 6)  # each record has three chunks
    writer = points.open(PLANNED, "1-a")
    for number in range(3):
        writer.add(record(number))
    assert [table.num_rows for table in points.read_files(POINT, [writer.finish()])] == [2, 1]


@pytest.mark.skipif(sys.platform != "linux", reason="threads have no priority of their own")
def test_records_are_written_at_a_lower_priority_than_that_of_the_measuring_processes(tmp_path: Path) -> None:
    class WatchedStore(FolderStore):
        def put(self, key: str, data: bytes) -> None:
            found.append(os.getpriority(os.PRIO_PROCESS, 0))
            super().put(key, data)

    found: list[int] = []
    own = os.getpriority(os.PRIO_PROCESS, 0)
    writer = RecordWriter(WatchedStore(tmp_path / "results"), PLANNED, "1-a")
    writer.add(record(0))
    writer.finish()

    assert found == [min(own + 10, 19)]
    assert os.getpriority(os.PRIO_PROCESS, 0) == own


def test_store_error_is_raised_by_finish_and_by_the_next_record(tmp_path: Path) -> None:
    store = RejectingStore(FolderStore(tmp_path / "results"), [("records/", StoreErrorReason.CREDENTIALS_REFUSED)])
    writer = RecordWriter(store, PLANNED, "1-a")
    writer.add(record(0))

    with pytest.raises(NotDurable) as caught:
        writer.finish()
    with pytest.raises(NotDurable):
        writer.add(record(1))

    assert caught.value.reason == "CredentialsRefused"


@pytest.fixture
def full_disk() -> Iterator[None]:
    """Files cannot grow beyond 100 bytes: the kernel rejects writes as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_ends_the_point_with_a_reason_and_leaves_no_file(
    full_disk: None, points: PointStore, tmp_path: Path
) -> None:
    writer = points.open(PLANNED, "1-a")
    for number in range(2):
        writer.add(record(number))
    with pytest.raises(NotDurable, match=r"free some space$") as caught:
        writer.finish()
    assert caught.value.reason == StoreErrorReason.DISK_FULL
    writer.abandon(5)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize("s3", [False, pytest.param(True, marks=pytest.mark.s3)], ids=["folder", "S3"])
def test_an_upload_of_an_attempt_that_ended_is_discarded(
    s3: bool, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one that was given up at once, of one that was killed by its successor."""
    store: Store = request.getfixturevalue("s3_store") if s3 else FolderStore(tmp_path / "results")
    points, records = PointStore(store), f"points/{POINT}/records/"
    monkeypatch.setattr(records_module, "UPLOAD_BYTES", 5 * 2**20)
    text = Random(1).randbytes(4 * 2**20).hex()
    given_up = points.open(PLANNED, "1-a")
    for number in range(3):
        given_up.add(dataclasses.replace(record(number), output_text=text[number:]))
    given_up.abandon(60)
    killed = store.start_upload(f"{records}0-2-killed.parquet")
    killed.add(b"part")

    listed = points.open(PLANNED, "3-b").finish()

    assert store.keys() == [listed.key]
    assert unfinished_uploads(store, records) == []
    killed.abort()


def unfinished_uploads(store: Store, prefix: str) -> list[str]:
    """Keys of the uploads with this prefix that are not complete."""
    if isinstance(store, FolderStore):
        names = (path.name.removeprefix(".incoming-") for path in Path(store.uri(prefix)).glob(".incoming-*"))
        return [f"{prefix}{name.rpartition('-')[0]}" for name in names]
    bucket, _, root = store.uri().removeprefix("s3://").partition("/")
    found = s3_client().list_multipart_uploads(Bucket=bucket, Prefix=f"{root}/{prefix}")
    return [each["Key"].removeprefix(f"{root}/") for each in found.get("Uploads", [])]


# -- commit and reading ------------------------------------------------------------------------------------------------


def test_committed_point_is_measured_and_readable(points: PointStore) -> None:
    manifest = commit_point(points)

    assert points.measured([POINT, "b" * 64]) == {POINT}
    assert points.manifests([POINT, "b" * 64]) == {POINT: manifest}
    assert points.read_summary(manifest) == summary_of()
    assert prompts_of(points, manifest) == ["q0", "q1", "q2"]
    assert manifest.started_monotonic_ns == SPAN.started_monotonic_ns


def test_records_of_a_killed_attempt_are_ignored(points: PointStore) -> None:
    killed = points.open(PLANNED, "1-a")
    killed.add(record(7))
    killed.finish()
    points.store.put(summary_key(POINT), b"of the killed attempt")

    manifest = commit_point(points, attempt="2-b")

    assert prompts_of(points, manifest) == ["q0", "q1", "q2"]
    assert points.read_summary(manifest) == summary_of()
    assert points.store.get(summary_key(POINT)) == b"of the killed attempt"
    assert summary_key(POINT, "2-b") in [file.key for file in manifest.files]
    assert len(points.store.keys(f"points/{POINT}/records/0-1-a")) == 1


def test_concurrent_commits_of_one_point_leave_one_complete_result(tmp_path: Path) -> None:
    """Both summaries are written before the first manifest, and the second manifest is written last."""
    folder = FolderStore(tmp_path / "results")

    def commit(store: Store, attempt: str, requests: int) -> None:
        points = PointStore(store)
        points.commit(summary_of(requests), attempt, [], SPAN, OBSERVED)

    first_may_continue = threading.Event()
    second_may_start = threading.Event()

    def wait_for_second() -> None:
        second_may_start.set()
        first_may_continue.wait()

    first = threading.Thread(target=commit, args=(InterferingStore(folder, "manifest.json", wait_for_second), "1-a", 1))
    first.start()
    second_may_start.wait()

    def finish_first() -> None:
        first_may_continue.set()
        first.join()

    with pytest.raises(NotDurable) as caught:
        commit(InterferingStore(folder, "manifest.json", finish_first), "2-b", 2)

    points = PointStore(folder)
    manifest = points.manifest(POINT)
    assert caught.value.reason == "Conflict"
    assert manifest is not None
    assert (manifest.attempt, points.read_summary(manifest)) == ("1-a", summary_of(1))


def test_manifest_without_a_summary_is_damaged(points: PointStore) -> None:
    manifest = commit_point(points)
    without = manifest.model_copy(update={"files": manifest.files[:-1]})

    with pytest.raises(NotDurable, match="lists no summary"):
        points.read_summary(without)


def test_point_is_committed_once(points: PointStore) -> None:
    first = commit_point(points)
    writer = points.open(PLANNED, "2-b")
    writer.add(record(9))

    with pytest.raises(NotDurable) as caught:
        points.commit(summary_of(requests=9), "2-b", [writer.finish()], SPAN, OBSERVED)

    assert caught.value.reason == "Conflict"
    assert points.manifest(POINT) == first
    assert points.read_summary(first) == summary_of()


@pytest.mark.parametrize("key", [summary_key(POINT), f"points/{POINT}/records/0-1-a.parquet"])
@pytest.mark.parametrize("damage", ["gone", "changed"])
def test_damaged_file_is_named_and_not_read(key: str, damage: str, points: PointStore, tmp_path: Path) -> None:
    manifest = commit_point(points)
    path = tmp_path / "results" / key
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-1] + b"?")

    read = points.read_summary if key == summary_key(POINT) else functools.partial(prompts_of, points)
    with pytest.raises(NotDurable, match=path.name) as caught:
        read(manifest)

    assert caught.value.reason == "Damaged"
    (named,) = re.findall(r"remove (\S+) with everything below it to measure the point again", str(caught.value))
    shutil.rmtree(named)
    assert points.manifests([POINT]) == {}


@pytest.mark.parametrize("content", [b"", b"{}", b'{"hash": 3}'])
def test_unreadable_manifest_is_damage_not_a_missing_point(content: bytes, points: PointStore) -> None:
    points.store.put(manifest_key(POINT), content)

    with pytest.raises(NotDurable, match=r"\(and \d+ more\)" if content else "it cannot be read") as caught:
        points.manifests([POINT])

    assert caught.value.reason == "Damaged"


@pytest.mark.parametrize("version", ["v1", "v9"])  # v1 lists records in parts
def test_manifest_of_another_version_is_reported_without_advice_to_remove(version: str, points: PointStore) -> None:
    document = {"schemaVersion": f"specbench.io/manifest/{version}", "hash": "a", "more": 1}
    points.store.put(manifest_key(POINT), json.dumps(document).encode())
    with pytest.raises(NotDurable) as caught:
        points.manifest(POINT)
    message = str(caught.value)
    assert f"it is a 'specbench.io/manifest/{version}', which this version of specbench does not read" in message
    assert "remove" not in message


def test_manifest_of_another_point_is_damaged(points: PointStore) -> None:
    manifest = commit_point(points)
    points.store.put(manifest_key("b" * 64), manifest.to_json().encode())

    with pytest.raises(NotDurable, match="belongs to the point"):
        points.manifest("b" * 64)


def damaged_file(kind: str) -> bytes:
    """Return a file that cannot be read as records."""
    if kind == "no Parquet":
        return b"hello"
    name, values = {
        "column of text": ("output_tokens", pa.array(["x"])),
        "missing turn": ("turn", pa.array([None], pa.int64())),
        "no column of turns": ("turn", None),
        "broken text": ("prompt_id", pa.array([b"\xff"]).view(pa.string())),
    }[kind]
    table = records_table(PLANNED, [FULL]).drop_columns([name])
    sink = io.BytesIO()
    pq.write_table(table if values is None else table.append_column(name, values), sink)
    return sink.getvalue()


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("column of text", "its column output_tokens has type string, not int64; remove "),
        ("no Parquet", "it is not a readable Parquet file: "),
        ("missing turn", "its column turn has no value in some rows; remove "),
        ("no column of turns", "its column turn has no value in some rows; remove "),
        ("broken text", "it is not a readable Parquet file: Column 1: .*Invalid UTF8"),
    ],
)
def test_file_that_cannot_be_read_as_records_is_damaged(kind: str, message: str, points: PointStore) -> None:
    key, data = f"points/{POINT}/records/0-1-a.parquet", damaged_file(kind)
    points.store.put(key, data)
    listed = StoredFile(key=key, size=len(data), sha256=hashlib.sha256(data).hexdigest(), rows=1)
    manifest = points.commit(summary_of(), "1-a", [listed], SPAN, OBSERVED)
    with pytest.raises(NotDurable, match=f"{key}: {message}") as caught:
        list(points.read_files(manifest.hash, manifest.files))
    assert caught.value.reason == "Damaged"


def test_failed_upload_is_reported_although_encoding_then_fails_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class RefusedFile(io.BytesIO):
        """Rejects writes from `close` on, which ends only after the thread that encodes has failed."""

        def write(self, data: Any) -> int:
            if closing.is_set():
                raise ValueError("I/O operation on closed file")
            return super().write(data)

        def close(self) -> None:
            closing.set()
            writer._records.put(record(1))
            writer._threads[0].join(60)
            super().close()

    closing, opened = threading.Event(), threading.Event()
    file = RefusedFile()
    monkeypatch.setattr(records_module, "GROUP_ROWS", 1)
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda **_: file)

    class RefusingStore(FolderStore):
        def abort_uploads(self, prefix: str) -> None:
            assert opened.wait(60)
            raise NotDurable("refused", StoreErrorReason.REFUSED)

    writer = RecordWriter(RefusingStore(tmp_path), PLANNED, "1-a")
    writer.add(record(0))
    while file.tell() == 0:
        writer._threads[0].join(0.01)
    opened.set()

    with pytest.raises(NotDurable, match="refused"):
        writer.finish()


def test_unavailable_store_gets_the_records_later(tmp_path: Path) -> None:
    folder = FolderStore(tmp_path / "results")
    failing = RejectingStore(folder, [("records/", StoreErrorReason.AWAY)] * 3)
    writer = RecordWriter(RetryingStore(failing, RetryPolicy(pause_s=lambda _: False)), PLANNED, "1-a")
    writer.add(record(0))

    assert [writer.finish().key] == folder.keys()
