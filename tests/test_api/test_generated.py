"""Generated files are up to date and agree with the models."""

from __future__ import annotations

import importlib.util
import re
from dataclasses import replace
from datetime import date
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

import pytest

from generators import api_reference as reference
from generators import engines_page as engines
from generators.custom_resources import support_rules
from specbench_api.launch.supported_methods import SUPPORT_BY_ENGINE, SUPPORT_MATRIX, Evidence, SupportEvidence
from specbench_api.spec.drafter import Method
from specbench_api.spec.engine import EngineKind

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def generate(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """hack/generate as a module."""
    monkeypatch.syspath_prepend(str(ROOT / "hack"))
    loader = SourceFileLoader("generate", str(ROOT / "hack/generate"))
    spec = importlib.util.spec_from_loader("generate", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def test_stale_missing_and_failing_files_are_reported_and_the_others_written(
    generate: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    files = (("old.md", "generators.engines_page:render"), ("new/page.md", "generators.engines_page:render"))
    monkeypatch.setattr(generate, "ROOT", tmp_path)
    monkeypatch.setattr(generate, "FILES", files)
    (tmp_path / "old.md").write_text("old")
    assert generate.generate(check=True) == 1
    stderr = capsys.readouterr().err
    assert "old.md: out of date" in stderr
    assert "new/page.md: out of date" in stderr
    monkeypatch.setattr(generate, "FILES", (("gone.md", "no_such_module:render"), *files))
    assert generate.generate(check=False) == 1
    assert "gone.md: no_such_module:render failed" in capsys.readouterr().err
    monkeypatch.setattr(generate, "FILES", files)
    assert generate.generate(check=True) == 0
    assert (tmp_path / "old.md").read_text() == engines.render()


def test_the_crd_has_a_rule_for_each_unsupported_pair() -> None:
    missing = [pair for pair, cell in SUPPORT_MATRIX.items() if not cell.supported]
    assert len(support_rules()) == len(missing)
    for (kind, method), rule in zip(missing, support_rules(), strict=True):
        assert f"'{kind}'" in rule.rule
        assert f"'{method}'" in rule.rule
        assert SUPPORT_MATRIX[kind, method].instead in rule.message


ROWS = (
    "| `concurrency` | list of integer |  | ≥ 1 items, ≤ 16 items, each ≥ 1, ≤ 4096 |",
    "| `topP` | number | `1` | > 0, ≤ 1 |",
    "| `extraBody` | map of anything | `{}` | ≤ 32 entries |",
    "| `nodeSelector` | map of string | `{}` |",
    '| `endpoint` | string | `""` |',
    "### `status.arms[].speedup`",
)


def test_the_api_reference_lists_fields_with_types_defaults_and_bounds() -> None:
    page = reference.render()
    assert [row for row in ROWS if row not in page] == []


def test_the_engines_page_names_the_evidence_of_each_row_and_its_day() -> None:
    page = engines.render()
    rows = re.findall(r"^\| `(\w+)` \| .+ \| [^|]* \| (run|parser|source|docs), (\S+) \((\d)\) \|$", page, re.MULTILINE)
    tables = [kind for kind in EngineKind if kind not in (EngineKind.SIMULATOR, EngineKind.EXTERNAL)]
    assert [row[0] for row in rows] == [*Method] * len(tables)
    assert all(date(2026, 11, 21) <= date.fromisoformat(row[2]) for row in rows)
    sections = dict(re.findall(r"^## (\S+)$(.*?)(?=^## )", page, re.MULTILINE | re.DOTALL))
    for kind in tables:
        notes = set(re.findall(r"^(\d)\. \S", sections[kind], re.MULTILINE))
        assert notes == set(re.findall(r" \((\d)\) \|$", sections[kind], re.MULTILINE))


def test_the_engines_page_names_engines_that_were_never_started(monkeypatch: pytest.MonkeyPatch) -> None:
    assert engines.never_run() == (
        "**No engine has run on a GPU by us.** Never started by us: `sglang`, `tensorrt-llm`."
    )
    assert "## tensorrt-llm\n\nTensorRT-LLM has never been started by us." in engines.render()
    cell = SUPPORT_MATRIX[EngineKind.TENSORRT_LLM, Method.NONE]
    run = replace(cell, evidence=Evidence(SupportEvidence.RUN, "2027-01-01", "one H100", on_gpu=True))
    cells = {**SUPPORT_BY_ENGINE[EngineKind.TENSORRT_LLM], Method.NONE: run}
    monkeypatch.setitem(SUPPORT_BY_ENGINE, EngineKind.TENSORRT_LLM, cells)
    assert engines.never_run() == "**Run on a GPU by us: only `tensorrt-llm`.** Never started by us: `sglang`."
    assert "TensorRT-LLM has never been started" not in engines.render()


def test_tables_of_the_engines_page_have_whole_rows() -> None:
    lines = [line for line in engines.render().splitlines() if line.startswith("|")]
    assert {line.count("|") for line in lines} == {3, 5, len(EngineKind) + 2}
