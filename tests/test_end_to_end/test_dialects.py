"""The same run in each dialect of the simulator has equal results, which match what the simulator did.

The simulator's behaviour depends only on model, prompt and seed. A local run of the same spec therefore gives the
ground truth for every dialect.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
import yaml

from specbench_api.spec.engine import SIMULATED_DIALECTS, DialectName
from specbench_testing.installed_product import InstalledProduct, small_run
from specbench_testing.synthetic_records import measured_rows

pytestmark = [pytest.mark.cluster, pytest.mark.alone, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
K = 3
DRAFTER = {"name": "eagle3", "method": "eagle3", "model": "simulated-eagle3", "numSpeculativeTokens": K}
FINISHED = (0, 3)
TURN = ["prompt_id", "turn"]
COUNTED = ["output_tokens", "steps", "accepted_tokens"]


def test_every_dialect_gives_the_same_results_as_the_ground_truth(product: InstalledProduct, tmp_path: Path) -> None:
    begun = {
        dialect: product.begin(f"speaks-{dialect}", {"spec.engine.dialect": str(dialect), "spec.drafters": [DRAFTER]})
        for dialect in SIMULATED_DIALECTS
    }
    truth = _truth(tmp_path)
    assert len(truth) == 10
    real = _positions(truth)
    length = (truth.output_tokens - 1).sum() / truth.steps.sum()
    for dialect, (run, stored) in begun.items():
        run.ends()
        seen = _by_turn(measured_rows(stored.records("eagle3")))
        assert seen[COUNTED].astype(int).equals(truth[COUNTED].astype(int)), dialect
        figures = stored.json("summary.json")["cells"][1]["figures"]
        assert figures["acceptance_length_emitted_pooled"]["value"] == pytest.approx(length), dialect
        if dialect is DialectName.TENSORRT_LLM:
            assert "position_acceptance_rate_1" not in figures, "its stream contains only the mean of a request"
            continue
        rates = [figures[f"position_acceptance_rate_{position}"]["value"] for position in range(1, K + 1)]
        assert rates == pytest.approx(real), dialect


def _truth(folder: Path) -> pd.DataFrame:
    """The simulator's ground truth, by prompt and turn."""
    written, results = folder / "truth.jsonl", folder / "out"
    edits = {
        "spec.workloads[0].dataset.uri": str(ROOT / "examples/prompts.jsonl"),
        "spec.drafters": [DRAFTER | {"args": [f"--truth={written}"]}],
    }
    (folder / "run.yaml").write_text(yaml.safe_dump(small_run("truth", edits)))
    specbench = str(Path(sys.executable).with_name("specbench"))
    command = [specbench, "run", str(folder / "run.yaml"), "--results", str(results)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode in FINISHED, done.stderr
    truth = pd.read_json(written, lines=True)
    files = sorted(results.rglob("records/arm=*/*/*.parquet"))
    records = measured_rows(pd.concat(pd.read_parquet(file) for file in files))
    return _by_turn(records[["request_id", *TURN]].merge(truth, on="request_id"))


def _by_turn(rows: pd.DataFrame) -> pd.DataFrame:
    assert not rows.duplicated(TURN).any(), "a turn is measured once"
    return rows.set_index(TURN).sort_index()


def _positions(truth: pd.DataFrame) -> list[float]:
    """Share of the steps with drafts that accepted at least 1, 2 … K of them."""
    steps = truth[["step_drafted", "step_accepted"]].explode(["step_drafted", "step_accepted"])
    accepted = steps.step_accepted[steps.step_drafted > 0]
    return [float((accepted >= position).mean()) for position in range(1, K + 1)]
