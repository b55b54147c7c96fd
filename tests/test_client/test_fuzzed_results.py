"""Mutated results folders through the commands that read results: each is shown, or refused with an error.

The seeds are fixed, so every run of the tests has the same cases: SECURITY.md lists them.
"""

from __future__ import annotations

import hashlib
import io
import json
import random
import shutil
from collections import Counter
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from specbench_api.outcome.layout import PLAN, SUMMARY
from specbench_api.outcome.termination import Exit
from specbench_client.cli import exit_code
from specbench_testing.fuzzing import bounded_case, bounded_memory, shifted
from specbench_testing.hostile_documents import mutate
from specbench_testing.local_results import store_results
from specbench_testing.long_cases import long_after
from specbench_testing.synthetic_records import SyntheticRun

CASES = 200
SEEDS = shifted(range(10))
WORLD = SyntheticRun(prompts=4, concurrency=(1,), repeats=2)
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
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    results = tmp_path_factory.mktemp("reference") / "out"
    store_results(WORLD, results, UID)
    assert exit_code(["report", str(results), "--output", "json"]) in (Exit.OK, Exit.UNTRUSTWORTHY)
    (plan,) = results.rglob(PLAN)
    return plan.parent


def _parsed(data: bytes) -> Any:
    try:
        return json.loads(data)
    except ValueError:  # an earlier mutation damaged it
        return None


def run_command(arguments: list[str]) -> tuple[int, str]:
    """Run a command; return its exit code and what it printed on stderr."""
    streams = [io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2)]
    with redirect_stdout(streams[0]), redirect_stderr(streams[1]):
        code = exit_code(arguments)
        streams[1].flush()
    return code, streams[1].buffer.getvalue().decode()


@pytest.mark.draws
@pytest.mark.parametrize("seed", long_after(1, SEEDS))
def test_a_mutated_results_folder_is_shown_or_refused(stored: Path, tmp_path: Path, seed: int) -> None:
    draw, outcomes, folder = random.Random(seed), Counter[int](), Folder(stored, tmp_path / "run")
    with bounded_memory():
        for number in range(CASES):
            command = COMMANDS[number % len(COMMANDS)]
            folder.restore()
            folder.mutate(draw)
            names = {"REFERENCE": str(stored), "records.parquet": str(tmp_path / "records.parquet")}
            words = [names.get(word, word) for word in command]
            where = 2 if command[0] == "analyze" else 1
            with bounded_case(f"seed {seed}, case {number}: {' '.join(command)}"):
                code, printed = run_command([*words[:where], str(folder.root), *words[where:]])
                assert code in (Exit.OK, Exit.UNTRUSTWORTHY, *REFUSALS), printed
                assert code not in REFUSALS or "error: " in printed
                outcomes[code] += 1
    assert sum(outcomes[code] for code in REFUSALS) > CASES // 4, outcomes
