"""The notebooks of examples/notebooks run from beginning to end, display results, and are stored without outputs."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
NOTEBOOKS = sorted((EXAMPLES / "notebooks").glob("*.ipynb"))
DISPLAYED = {
    "first-answer": (
        "speedup_low",
        "severity",
        "ttft_ms_p95",
        "image/png",
        "e2e_ms",
        "for throughput with TPOT p95",
        "count_star()",
    ),
    "compare-and-gate": ("output_tps", "### specbench", "Worse", "exit code 3"),
}
"""Notebook → what it displays, in this order."""


def read(file: Path) -> Any:
    return nbformat.read(file, as_version=4)  # type: ignore[no-untyped-call]


def code_cells(notebook: Any) -> list[Any]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.stem)
def test_a_notebook_is_stored_without_outputs(file: Path) -> None:
    cells = code_cells(read(file))
    assert cells
    assert [cell.source for cell in cells if cell.outputs or cell.execution_count is not None] == []


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", DISPLAYED)
def test_a_notebook_runs_and_displays_its_results(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import nbclient  # slow to import

    monkeypatch.setenv("PATH", os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    for file in ("prompts.jsonl", "local-simulator.yaml"):
        shutil.copy(EXAMPLES / file, tmp_path)
    (tmp_path / "notebooks").mkdir()
    notebook = read(EXAMPLES / "notebooks" / f"{name}.ipynb")
    nbclient.NotebookClient(
        notebook, timeout=280, kernel_name="python3", resources={"metadata": {"path": str(tmp_path / "notebooks")}}
    ).execute()
    shown = "\n".join(str(output) for cell in code_cells(notebook) for output in cell.outputs)
    places = [shown.find(text) for text in DISPLAYED[name]]
    assert -1 not in places, shown
    assert places == sorted(places)
    assert "\x1b[2K" not in shown, "progress without control sequences"


def test_every_notebook_is_executed() -> None:
    assert {file.stem for file in NOTEBOOKS} == set(DISPLAYED)
