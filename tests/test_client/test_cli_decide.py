"""`specbench decide` over stored results."""

from __future__ import annotations

from pathlib import Path

import pytest

from specbench_api.outcome.layout import SUMMARY, run_root
from specbench_api.outcome.termination import Exit
from specbench_client.cli import exit_code
from specbench_client.documents.recommendation import Objective, Recommendation
from specbench_client.store.folder import FolderStore
from specbench_testing.local_results import store_results
from specbench_testing.synthetic_records import SyntheticRun, run_of_world

pytestmark = pytest.mark.runs

UID = "0190a000-0000-7000-8000-000000000000"
WORLD = SyntheticRun(prompts=12, concurrency=(1, 2), drafters=("ngram", "slow"), step_ms={"slow": 40.0})


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stored run with its summary."""
    folder = tmp_path_factory.mktemp("decide") / "out"
    plan = store_results(WORLD, folder, UID, points=0)
    store = FolderStore(folder / run_root(plan.namespace, plan.name, UID))
    store.put(SUMMARY, run_of_world(WORLD).to_json().encode())
    return folder


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    capsys.readouterr()
    code = exit_code(list(arguments))
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def test_text_starts_with_the_recommendation(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "decide", str(results))
    assert code == Exit.OK
    assert out.startswith("For throughput: use ngram at concurrency ")
    for word in (
        "Answers",
        "Evidence (throughput, tokens/s)",
        "limit: Only measured loads",
    ):
        assert word in out
    assert "Cost/1M" not in out, "no price was given"


def test_json_can_be_parsed_again(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--objective", "latency", "--slo-tpot-ms", "11", "--slo-percentile", "p50", "--worth", "10")
    code, out, _ = run(capsys, "decide", str(results), *options, "-o", "json")
    found = Recommendation.from_json(out)
    assert (code, found.objective, found.worth) == (Exit.OK, Objective.LATENCY, 1.1)
    assert [each.words for each in found.targets] == ["TPOT p50 ≤ 11 ms"]
    assert {each.arm: each.shown for each in found.choices[0].sustained} == {"none": "2", "ngram": "2", "slow": None}


def test_markdown_shows_costs_with_flags_overriding_the_price_file(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prices = tmp_path / "prices.yaml"
    prices.write_text("currency: EUR\nmachineHour: 99\n")
    flags = ("--prices", str(prices), "--machine-price", "0.5")
    code, out, _ = run(capsys, "decide", str(results), "--objective", "cost", *flags, "-o", "markdown")
    assert code == Exit.OK
    assert out.startswith("# For cost: ")
    assert "## Evidence (cost, EUR a million output tokens)" in out
    assert "| Cost/1M | Saved |" in out
    assert "- prices: 0.5 EUR an hour for all that one engine runs on" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--objective", "cost"), "the objective cost needs prices"),
        (("--gpu-price", "2"), "how many GPUs the engine of arm none has (give --gpus N, or --machine-price for"),
        (("--load", "7"), "'7' was not measured (measured: 1, 2)"),
        (("--slo-tpot-ms", "0"), "--slo-tpot-ms"),
        (("--slo-tpot-ms", "nan"), "'nan': give a number above 0"),
        (("--worth", "nan"), "nan is not a finite number"),
        (("--machine-price", "inf"), "inf is not a finite number"),
    ],
)
def test_invalid_options_are_rejected_with_a_remedy(
    results: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], message: str
) -> None:
    code, _, err = run(capsys, "decide", str(results), *arguments)
    assert code == Exit.BAD_INPUT
    assert message in err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- 1", "expected one mapping of names to values, found list"),
        ("gpuHour: [", "not valid YAML"),
        ("gpuHours: {H100: 1}", "gpuHours"),
        ("gpuHour: {H100: -1}", "greater than"),
        ("gpuHour: {H100: 0}", "greater than"),
    ],
)
def test_invalid_price_list_is_rejected_with_its_name(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, message: str
) -> None:
    (tmp_path / "prices.yaml").write_text(text)
    code, _, err = run(capsys, "decide", str(results), "--prices", str(tmp_path / "prices.yaml"))
    assert code == Exit.BAD_INPUT
    assert "prices.yaml" in err
    assert message in err
