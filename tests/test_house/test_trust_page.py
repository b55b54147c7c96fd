"""benchmarks/trust.md: every check has a row, and every row contains the name of the test that injects the fault."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from specbench_client.trust.registry import REMEDIES
from virtual_time.corrupted_worlds import CORRUPTED_WORLDS

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "benchmarks/trust.md").read_text(encoding="utf-8")
TABLE = PAGE.partition("## Injected faults")[2]
ROWS = [
    [cell.strip() for cell in line.strip("|").split(" | ")] for line in TABLE.splitlines() if line.startswith("| ")
][1:]
CHECKS = set(REMEDIES)
REJECTED = "refused"
"""Replaces the check in rows whose fault is rejected before it is measured."""
TESTS = {
    name
    for file in (ROOT / "tests/test_client").glob("test_*.py")
    for name in re.findall(r"^def (test_\w+)", file.read_text(encoding="utf-8"), re.MULTILINE)
}


def test_every_check_has_a_row() -> None:
    assert {row[1] for row in ROWS} - {REJECTED} == CHECKS


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_every_row_is_complete_and_its_fault_is_injected_by_an_existing_test(row: list[str]) -> None:
    assert len(row) == 3
    _, check, injected = row
    assert all(row)
    kind, _, name = injected.partition(" ")
    if kind == "virtual":
        assert check in CORRUPTED_WORLDS[name].checks
    else:
        assert injected in TESTS


def test_every_corrupted_world_has_a_row() -> None:
    assert set(CORRUPTED_WORLDS) == {row[-1].removeprefix("virtual ") for row in ROWS if row[-1].startswith("virtual ")}
