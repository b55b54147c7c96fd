"""Results of strangers: hostile and mutated folders are shown safely or refused."""

from __future__ import annotations

import hashlib
import io
import json
import os
import random
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from specbench_api.outcome.exit_codes import Exit
from specbench_api.outcome.layout import PLAN, SUMMARY
from specbench_client.bounded_json import parse_json
from specbench_client.cli import exit_code
from specbench_client.errors import NotDurable
from specbench_client.store import folder
from specbench_client.store.folder import FolderStore
from specbench_client.store.records import GROUP_ROWS_MAX, GROUP_VALUES_MAX, UnreadableRecords, iter_tables
from specbench_testing.command_line import specbench_here
from specbench_testing.fuzzing import bounded_case, bounded_memory, shifted
from specbench_testing.hostile_documents import mutate
from specbench_testing.local_results import store_results
from specbench_testing.long_cases import long_after
from specbench_testing.synthetic_records import SyntheticRun

WORLD = SyntheticRun(prompts=4, concurrency=(1,), repeats=1)
Edit = Callable[[Any], None]


def reported(world: SyntheticRun, results: Path, uid: str) -> Path:
    """Store a run and write its report; returns the folder of the run."""
    store_results(world, results, uid)
    assert exit_code(["report", str(results), "--output", "json"]) in (Exit.OK, Exit.UNTRUSTWORTHY)
    (plan,) = results.rglob(PLAN)
    return plan.parent


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return reported(WORLD, tmp_path_factory.mktemp("stored") / "out", "0190a000-0000-7000-8000-000000000000")


@pytest.fixture
def root(stored: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(stored, tmp_path / "run"))


def edited(file: Path, edit: Edit) -> None:
    document = json.loads(file.read_text())
    edit(document)
    file.write_text(json.dumps(document))


def set_at(*path: int | str, to: Any) -> Edit:
    """Return an edit that replaces the value at a path."""

    def edit(document: Any) -> None:
        for step in path[:-1]:
            document = document[step]
        document[path[-1]] = to

    return edit


def manifest(root: Path) -> Path:
    return min(root.rglob("points/*/manifest.json"))


OUTSIDE = ["../../../../../../etc/passwd", "/etc/passwd", "points/../../x", "points/.hidden", "s3://other/key", ""]


# -- folders -----------------------------------------------------------------------------------------------------------


def test_a_link_out_of_the_results_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("key")
    results = tmp_path / "results"
    results.mkdir()
    (results / "plan.json").symlink_to("../secret")
    (results / "points").symlink_to(tmp_path)
    for key in ("plan.json", "points/secret"):
        with pytest.raises(NotDurable, match="is a link to a file outside of the results: copy the file there"):
            FolderStore(results).get(key)


def test_links_within_the_results_and_to_the_results_are_followed(tmp_path: Path) -> None:
    (tmp_path / "results/a").mkdir(parents=True)
    (tmp_path / "results/a/plan.json").write_text("{}")
    (tmp_path / "results/b").symlink_to("a")
    (tmp_path / "link").symlink_to("results")
    assert FolderStore(tmp_path / "link").get("b/plan.json") == b"{}"


def test_a_pipe_among_the_results_does_not_block_the_reader(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "plan.json")
    with pytest.raises(NotDurable, match=r"plan\.json: is not a regular file"):
        FolderStore(tmp_path).get("plan.json")


def test_a_file_above_the_limit_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder, "OBJECT_BYTES_MAX", 2**20)
    with (tmp_path / "plan.json").open("wb") as file:
        file.truncate(2**20 + 1)
    with pytest.raises(NotDurable, match="is larger than 1 MiB"):
        FolderStore(tmp_path).get("plan.json")


# -- Parquet -----------------------------------------------------------------------------------------------------------


def parquet(table: pa.Table) -> bytes:
    target = io.BytesIO()
    pq.write_table(table, target, compression="zstd")
    return target.getvalue()


def many_rows() -> bytes:
    return parquet(pa.table({"turn": pa.array([1], pa.int64()).take(pa.array([0] * (GROUP_ROWS_MAX + 1)))}))


def one_text_in_every_row() -> bytes:
    """One text of 1 MiB, stored once, for 2,000 rows."""
    indices = pa.array([0] * 2000, pa.int32())
    return parquet(pa.table({"output_text": pa.DictionaryArray.from_arrays(indices, pa.array(["x" * 2**20]))}))


def long_lists() -> bytes:
    """Lists of equal numbers, which take no room in the file."""
    values = pa.chunked_array([pa.nulls(GROUP_VALUES_MAX // 100, pa.bool_()).fill_null(True)] * 101)
    offsets = pa.array([0, len(values)], pa.int64())
    return parquet(pa.table({"x": pa.LargeListArray.from_arrays(offsets, values.combine_chunks())}))


@pytest.mark.draws
@pytest.mark.parametrize(
    ("bomb", "message"),
    [
        (many_rows, f"describes {GROUP_ROWS_MAX + 1:,} rows; it has at most {GROUP_ROWS_MAX:,}"),
        (
            one_text_in_every_row,
            f"texts of a row group have {2000 * 2**20:,} bytes; it has at most {2**30:,}",
        ),
        (long_lists, "values; it has at most"),
        (lambda: b"PAR1" + b"\xff" * 100 + b"PAR1", "not a readable Parquet file"),
        (lambda: parquet(pa.table({"turn": [1]})).replace(b"turn", b"\xb9urn"), "not a readable Parquet file"),
        (lambda: b"", "not a readable Parquet file"),
    ],
    ids=["rows", "texts", "lists", "footer", "name", "empty"],
)
def test_a_small_file_that_describes_a_large_table_is_not_read(bomb: Callable[[], bytes], message: str) -> None:
    file = bomb()
    assert len(file) < 2**20
    with pytest.raises(UnreadableRecords, match=message):
        list(iter_tables(io.BytesIO(file)))


def test_a_column_of_another_type_is_not_read() -> None:
    with pytest.raises(UnreadableRecords, match="its column turn has type string, not int64"):
        list(iter_tables(io.BytesIO(parquet(pa.table({"turn": ["x"]}))), ["turn"]))


@pytest.mark.runs
def test_a_signed_bomb_is_reported_with_its_file(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The author of a manifest can state any digest, so a digest does not make a file safe."""
    file = manifest(root)
    document = json.loads(file.read_text())
    listed, data = document["files"][0], one_text_in_every_row()
    (root / listed["key"]).write_bytes(data)
    listed |= {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    file.write_text(json.dumps(document))
    assert exit_code(["report", str(root), "--recompute"]) == Exit.RESULTS_NOT_STORED
    assert f"{listed['key']}: the texts of a row group have" in capsys.readouterr().err


@pytest.mark.runs
@pytest.mark.parametrize(
    ("key", "message"),
    [
        *((key, "manifest.json: it cannot be read: files.0.key: String should match pattern") for key in OUTSIDE),
        ("points/other/records/0-a.parquet", "which is outside of points/"),
    ],
)
def test_a_manifest_cannot_list_a_file_outside_of_its_point(
    root: Path, key: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    edited(manifest(root), set_at("files", 0, "key", to=key))
    assert exit_code(["report", str(root), "--recompute"]) == Exit.RESULTS_NOT_STORED
    assert message in capsys.readouterr().err


DEEP = "[" * 100_000 + "]" * 100_000


@pytest.mark.parametrize(
    "text", [DEEP, '{"a":' * 50_000, DEEP.encode(), "9" * 5000], ids=["lists", "mappings", "bytes", "digits"]
)
def test_json_with_too_much_nesting_or_too_many_digits_is_a_decode_error(text: str | bytes) -> None:
    with pytest.raises(json.JSONDecodeError):
        parse_json(text)


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("log.jsonl", ["analyze", "drift", "FILE", "FILE"]),
        ("prompts.jsonl", ["dataset", "inspect", "FILE"]),
    ],
)
def test_a_command_rejects_deeply_nested_json_with_the_file(
    name: str, command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / name
    file.write_text(DEEP)
    assert exit_code([str(file) if word == "FILE" else word for word in command]) == Exit.BAD_INPUT
    error = capsys.readouterr().err
    assert str(file) in error
    assert len(error) < 1000


CASES = 200
SEEDS = shifted(range(10))
RESULTS_WORLD = SyntheticRun(prompts=4, concurrency=(1,), repeats=2)
UID = "0190a000-0000-7000-8000-000000000000"
COMMANDS: Sequence[Sequence[str]] = (
    ("report",),
    ("report", "--all"),
    ("report", "--output", "markdown"),
    ("report", "--output", "csv"),
    ("report", "--output", "json"),
    ("report", "--output", "parquet", "--to", "records.parquet"),
    ("report", "--recompute"),
    ("compare", "--output", "markdown", "REFERENCE"),
    ("gate", "--baseline", "REFERENCE"),
    ("decide",),
    ("decide", "--output", "markdown"),
    ("analyze", "breakdown"),
    ("analyze", "explain"),
    ("analyze", "curve", "--by", "concurrency"),
    ("analyze", "drift", "REFERENCE"),
    ("recover", "--into", "s3://bench"),
)
REFUSALS = (Exit.BAD_INPUT, Exit.RESULTS_NOT_STORED)


class Folder:
    """A results folder that is mutated and restored."""

    def __init__(self, stored: Path, root: Path) -> None:
        self.stored, self.root = stored, root
        self.files = sorted(path.relative_to(stored) for path in stored.rglob("*") if path.is_file())
        self.documents = [json.loads((stored / file).read_text()) for file in self.files if file.suffix == ".json"]
        self.restore()

    def restore(self) -> None:
        shutil.rmtree(self.root, ignore_errors=True)
        shutil.copytree(self.stored, self.root)

    def mutate(self, draw: random.Random) -> None:
        """Change one or two files; half of the time, state their new digests in the manifests."""
        kinds = [PLAN, SUMMARY, "points/*/summary.json", "points/*/manifest.json", "points/*/records/*.parquet"]
        for _ in range(draw.choice((1, 1, 2))):
            self._mutate_file(draw.choice(sorted(self.root.glob(draw.choice(kinds))) or [self.root / PLAN]), draw)
        if draw.random() < 0.5:
            self._sign()

    def _mutate_file(self, file: Path, draw: random.Random) -> None:
        if not file.exists():
            return
        data = file.read_bytes()
        document = _parsed(data) if file.suffix == ".json" and draw.random() < 0.9 else None
        if document:
            file.write_text(json.dumps(mutate(document, draw, self.documents)))
            return
        at = draw.randrange(len(data) + 1)
        match draw.randrange(5):
            case 0:
                file.unlink()
            case 1:
                file.write_bytes(data[:at])
            case 2:
                file.write_bytes(b"")
            case _:
                file.write_bytes(data[:at] + draw.randbytes(draw.choice((1, 4, 64))) + data[at + 4 :])

    def _sign(self) -> None:
        for manifest in self.root.rglob("manifest.json"):
            try:
                document: Any = json.loads(manifest.read_text())
                for entry in document["files"]:
                    data = (self.root / entry["key"]).read_bytes()
                    entry |= {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
            except (ValueError, TypeError, KeyError, OSError):
                continue  # the mutation removed what would be signed
            manifest.write_text(json.dumps(document))


@pytest.fixture(scope="module")
def stored_of_results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return reported(RESULTS_WORLD, tmp_path_factory.mktemp("reference") / "out", UID)


def _parsed(data: bytes) -> Any:
    try:
        return json.loads(data)
    except ValueError:  # an earlier mutation damaged it
        return None


@pytest.mark.draws
@pytest.mark.parametrize("seed", long_after(1, SEEDS))
def test_a_mutated_results_folder_is_shown_or_refused(stored_of_results: Path, tmp_path: Path, seed: int) -> None:
    draw, outcomes, folder = random.Random(seed), Counter[int](), Folder(stored_of_results, tmp_path / "run")
    with bounded_memory():
        for number in range(CASES):
            command = COMMANDS[number % len(COMMANDS)]
            folder.restore()
            folder.mutate(draw)
            names = {"REFERENCE": str(stored_of_results), "records.parquet": str(tmp_path / "records.parquet")}
            words = [names.get(word, word) for word in command]
            where = 2 if command[0] == "analyze" else 1
            with bounded_case(f"seed {seed}, case {number}: {' '.join(command)}"):
                done = specbench_here(*words[:where], str(folder.root), *words[where:], cwd=tmp_path)
                code, printed = done.returncode, done.stderr
                assert code in (Exit.OK, Exit.UNTRUSTWORTHY, *REFUSALS), printed
                assert code not in REFUSALS or "error: " in printed
                outcomes[code] += 1
    assert sum(outcomes[code] for code in REFUSALS) > CASES // 4, outcomes
