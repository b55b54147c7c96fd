"""`specbench decide` and `specbench compare --published` over what lies in a folder."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from specbench_api.outcome.ending import Exit
from specbench_api.outcome.layout import SUMMARY, run_root
from specbench_api.outcome.published import PublishedComparison
from specbench_api.outcome.recommendation import Objective, Recommendation
from specbench_client.cli import exit_code
from specbench_client.store.folder import FolderStore
from specbench_testing.kept import keep
from specbench_testing.records import World, run_of_world

pytestmark = pytest.mark.usefixtures("few_resamples")

UID = "0190a000-0000-7000-8000-000000000000"
WORLD = World(prompts=12, concurrency=(1, 2), drafters=("ngram", "slow"), step_ms={"slow": 40.0})


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with its answer."""
    folder = tmp_path_factory.mktemp("decide") / "out"
    plan = keep(WORLD, folder, UID, points=0)
    store = FolderStore(folder / run_root(plan.namespace, plan.name, UID))
    store.put(SUMMARY, run_of_world(WORLD).to_json().encode())
    return folder


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    capsys.readouterr()
    code = exit_code(list(arguments))
    told = capsys.readouterr()
    return code, told.out, told.err


def test_the_recommendation_for_people_has_the_answer_first(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "decide", str(results))
    assert code == Exit.OK
    assert out.startswith("for throughput: ngram at concurrency ")
    for word in (
        "Answers",
        "Evidence (throughput, tokens/s)",
        "Rules of thumb beside it",
        "limit: Only measured loads",
    ):
        assert word in out
    assert "Cost/1M" not in out, "nobody gave a price"


def test_as_json_it_is_one_document_that_is_read_again(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ("--objective", "latency", "--slo-tpot-ms", "11", "--slo-percentile", "p50", "--worth", "10")
    code, out, _ = run(capsys, "decide", str(results), *asked, "-o", "json")
    found = Recommendation.from_json(out)
    assert (code, found.objective, found.worth) == (Exit.OK, Objective.LATENCY, 1.1)
    assert [each.words for each in found.targets] == ["TPOT p50 ≤ 11 ms"]
    assert {each.arm: each.shown for each in found.choices[0].sustained} == {"none": "2", "ngram": "2", "slow": None}


def test_as_markdown_with_prices_from_a_file_and_flags_over_it(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prices = tmp_path / "prices.yaml"
    prices.write_text("currency: EUR\nmachineHour: 99\ntraining: {slow: 10}\nrequestsUntilRetrain: 1000\n")
    flags = ("--prices", str(prices), "--machine-price", "0.5", "--training-cost", "ngram=5")
    code, out, _ = run(capsys, "decide", str(results), "--objective", "cost", *flags, "-o", "markdown")
    assert code == Exit.OK
    assert out.startswith("# for cost: ")
    assert "## Evidence (cost, EUR a million output tokens)" in out
    assert "| Cost/1M | Saved |" in out
    assert "- Prices: 0.5 EUR an hour for all that one engine runs on" in out
    assert "Joules per token are missing" in out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--objective", "cost"), "the objective cost needs prices"),
        (("--gpu-price", "2"), "nobody told how many GPUs the engine of arm none has"),
        (("--machine-price", "1", "--training-cost", "ngram"), "'ngram' is not ARM=AMOUNT"),
        (("--machine-price", "1", "--training-cost", "medusa=5"), "the run has no such arm"),
        (("--load", "7"), "'7' was not measured (measured: 1, 2)"),
        (("--slo-tpot-ms", "0"), "--slo-tpot-ms"),
        (("--slo-tpot-ms", "nan"), "nan is no number"),
        (("--worth", "nan"), "nan is no number"),
        (("--machine-price", "inf"), "inf is no number"),
    ],
)
def test_a_bad_question_is_refused_with_what_to_do(
    results: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], said: str
) -> None:
    code, _, err = run(capsys, "decide", str(results), *arguments)
    assert code == Exit.BAD_INPUT
    assert said in err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("- 1", "expected a price list, found list"),
        ("gpuHour: [", "cannot be read as YAML"),
        ("gpuHours: {H100: 1}", "gpuHours"),
        ("gpuHour: {H100: -1}", "greater than"),
        ("gpuHour: {H100: 0}", "greater than"),
    ],
)
def test_a_bad_price_list_is_refused_by_its_name(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, said: str
) -> None:
    (tmp_path / "prices.yaml").write_text(text)
    code, _, err = run(capsys, "decide", str(results), "--prices", str(tmp_path / "prices.yaml"))
    assert code == Exit.BAD_INPUT
    assert "prices.yaml" in err
    assert said in err


def test_a_run_without_an_answer_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keep(WORLD, tmp_path / "out", UID, points=1)
    code, _, err = run(capsys, "decide", str(tmp_path / "out"))
    assert code == Exit.BAD_INPUT
    assert "no answer yet" in err


def test_the_published_tables_are_listed_with_their_sources(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "compare", "--published", "list", "-o", "json")
    tables = json.loads(out)
    assert code == Exit.OK
    assert {"illusion-batch", "speed-bench"} <= {table["name"] for table in tables}
    assert all(table["source"] for table in tables)
    for form in ("text", "markdown"):
        assert "2601.11580" in run(capsys, "compare", "--published", "list", "-o", form)[1]


def test_a_run_is_laid_beside_a_published_table(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "compare", str(results), "--published", "illusion-batch", "-o", "json")
    found = PublishedComparison.from_json(out)
    assert code == Exit.OK
    assert {(row.arm, row.published.method) for row in found.rows} == {("ngram", "ngram"), ("slow", "ngram")}
    for form in ("text", "markdown"):
        told = run(capsys, "compare", str(results), "--published", "illusion-batch", "-o", form)[1]
        assert "no pass, no fail" in told
        assert "Differs" in told


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("{results}",), "give two results, BEFORE and AFTER"),
        ((), "give two results, BEFORE and AFTER"),
        (("--published", "illusion-batch"), "give one result"),
        (("{results}", "{results}", "--published", "illusion-batch"), "give one result"),
        (("{results}", "--published", "list"), "compares nothing"),
        (("{results}", "--published", "mine"), "is no table"),
    ],
)
def test_what_compare_cannot_do_is_said(
    results: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], said: str
) -> None:
    code, _, err = run(capsys, "compare", *(each.format(results=results) for each in arguments))
    assert code == Exit.BAD_INPUT
    assert said in err


def test_an_answer_that_is_half_a_file_is_told_with_how_to_make_it_anew(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(results, tmp_path / "out")
    (summary,) = (tmp_path / "out").glob("runs/*/*/*/summary.json")
    summary.write_bytes(summary.read_bytes()[:1000])
    code, _, err = run(capsys, "decide", str(tmp_path / "out"))
    assert code == Exit.NOT_DURABLE
    assert f"specbench report {summary.parent} --recompute" in " ".join(err.split())
