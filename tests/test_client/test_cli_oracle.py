"""`specbench oracle` from traces and from stored runs: whose drafts, with whom combined, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from specbench_api.outcome.ending import Exit
from specbench_api.outcome.oracle import OracleReport, Policy
from specbench_api.plan.plan import Point
from specbench_client.cli import exit_code
from specbench_testing.kept import keep
from specbench_testing.records import World

UID = "0190a000-0000-7000-8000-000000000000"
WORLD = World(prompts=12, repeats=2, drafts=10, drafters=("long", "other"), alpha={"long": 0.7}, tokens=(30, 60))


def trace_row(number: int, **more: Any) -> dict[str, Any]:
    rng = np.random.default_rng(number)
    eagle, ngram = ([1, *(int(each) for each in rng.integers(1, 5, 30))] for _ in range(2))
    ids = {"prompt_token_ids": list(range(20)), "generated_token_ids": [*range(5, 20), *range(5, 21)]}
    return {"id": str(number), **ids, "acc_eagle": {"acc_len": eagle}, "acc_ngram": {"acc_len": ngram}, **more}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A stored run of two arms; nothing here writes to it."""
    folder = tmp_path_factory.mktemp("run") / "out"
    keep(WORLD, folder, UID)
    return str(folder)


def written(tmp_path: Path, rows: list[dict[str, Any]]) -> str:
    file = tmp_path / "trace.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(file)


def asked(capsys: pytest.CaptureFixture[str], *arguments: str) -> OracleReport:
    assert exit_code(["oracle", *arguments, "--output", "json"]) == Exit.OK
    return OracleReport.from_json(capsys.readouterr().out)


def test_a_trace_has_its_policies_and_with_a_step_cost_its_headroom(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = written(tmp_path, [trace_row(number) for number in range(8)])
    report = asked(capsys, file, "--step-cost", "published-h100", "--batch", "1,64", "-k", "1,3")
    assert [(each.policy, each.drafts) for each in report.rows] == [
        (Policy.FIXED, 1), (Policy.FIXED, 3), (Policy.ORACLE, None),
    ]  # fmt: skip
    assert [each.batch for each in report.rooms] == [1, 64]
    assert report.drafters == ["eagle"]
    assert report.covered is None


def test_two_drafters_of_a_trace_are_combined_and_it_says_that_nobody_compared_their_texts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = written(tmp_path, [trace_row(number) for number in range(8)])
    report = asked(capsys, file, "--with", "ngram", "--step-cost", "published-h100")
    assert (report.covered_by or "").startswith("nothing")
    assert [each.charge for each in report.rows if each.policy is Policy.COMBINE] == ["winner", "both"]
    published = asked(capsys, file, "--with", "ngram", "--step-cost", "published-h100", "--as-published")
    assert published.rows[-1].charge == "uncharged"
    assert published.conventions == "published"


def test_ids_of_a_traces_answers_are_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = []
    for number in range(8):
        row = trace_row(number)
        row["acc_eagle"]["token_ids"] = row["generated_token_ids"]
        row["acc_ngram"]["token_ids"] = [*row["generated_token_ids"][:10], *[99] * 21]
        rows.append(row)
    report = asked(capsys, written(tmp_path, rows), "--with", "ngram")
    assert report.covered is not None
    assert report.covered.value == pytest.approx(10 / 31)


def test_a_trace_is_combined_with_a_replay_of_its_own_tokens(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = asked(capsys, written(tmp_path, [trace_row(number) for number in range(8)]), "--with", "replay")
    (ngram,) = [each for each in report.rows if each.drafter == "ngram"]
    assert (ngram.acceptance_length.value or 0) > 3


def test_a_run_with_long_drafts_tells_other_lengths_and_what_was_measured_at_its_own(
    run: str, capsys: pytest.CaptureFixture[str]
) -> None:
    report = asked(capsys, run, "--arm", "long")
    assert [each.drafts for each in report.what_if] == [1, 2, 3, 5, 7, 10]
    assert report.what_if[-1].span_split.value == report.what_if[-1].truncated.value
    assert report.rows[-1].acceptance_length.value == report.rows[-2].acceptance_length.value
    assert set(report.censored) == {"long"}
    assert report.answers == 24


def test_an_arm_that_keeps_its_steps_to_itself_does_not_hide_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As n-gram does beside a shorter eagle3: it is first by its drafts, and cannot be asked."""

    def silent(point: Point, frame: pd.DataFrame) -> pd.DataFrame:
        return frame.assign(step_accepted=None) if point.arm == "long" else frame

    keep(WORLD, tmp_path / "out", UID, edit=silent)
    assert asked(capsys, str(tmp_path / "out")).drafters == ["other"]
    assert exit_code(["oracle", str(tmp_path / "out"), "--arm", "long"]) == Exit.BAD_INPUT
    assert "no answer tells its steps" in capsys.readouterr().err


def test_lengths_of_a_known_acceptance_are_found_from_one_run_of_long_drafts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each draft is accepted with 0.7 whatever came before: (1 - 0.7^(k+1)) / 0.3 tokens a step."""
    world = World(
        prompts=20, repeats=1, drafts=20, drafters=("long",), alpha={"long": 0.7}, alpha_spread=0.0, tokens=(600, 600)
    )
    keep(world, tmp_path / "out", UID)
    report = asked(capsys, str(tmp_path / "out"), "-k", "1,3,8")
    wanted = [(1 - 0.7 ** (k + 1)) / 0.3 for k in (1, 3, 8)]
    assert [each.span_split.value for each in report.what_if] == pytest.approx(wanted, rel=0.025)
    assert report.censored["long"].value == pytest.approx(0.7**20, abs=0.003)


def test_two_arms_of_a_run_are_combined_where_their_texts_are_the_same(
    run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = asked(capsys, run, "--arm", "long", "--with", "other", "--step-cost", cost(tmp_path))
    assert report.covered is not None
    assert report.covered.value == 1.0
    assert (report.covered_by or "").startswith("SHA-256")
    winner, both = (each.speedups["1"].value or 0 for each in report.rows[-2:])
    assert winner > both


def cost(tmp_path: Path) -> str:
    """Arms are priced by their names; what is not known by its own is by its method."""
    file = tmp_path / "cost.yaml"
    file.write_text(
        "{name: ours, source: a test, target: {fixedS: 0.01, perTokenS: 0.0001},"
        " drafters: {long: {perDraftS: 0.0005}, ngram: {fixedS: 0.002}}}"
    )
    return str(file)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--arm", "none"], "--arm none: the run drafts with long, other"),
        (["--with", "long", "--arm", "long"], "--with long: is the arm itself"),
        (["--workload", "w"], "--workload w: the run has "),
        (["--load", "77"], "--load 77: the run has 1"),
        (["--step-cost", "published-h100-by-draft", "--arm", "long", "--with", "replay"], "--keep-text"),
    ],
)
def test_what_a_run_cannot_tell_is_refused_with_what_to_do(
    run: str, capsys: pytest.CaptureFixture[str], arguments: list[str], says: str
) -> None:
    assert exit_code(["oracle", run, *arguments]) == Exit.BAD_INPUT
    assert says in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("row", "arguments", "says"),
    [
        ({"prompt": "x", "output": "y"}, [], "no row has"),
        (trace_row(1), ["--arm", "medusa"], "--arm medusa: the file tells of eagle, ngram"),
        (trace_row(1), ["--with", "eagle"], "--with eagle: the file tells of ngram, replay"),
        (trace_row(1, acc_eagle={"acc_len": [1, 0]}), [], "acc_len is no list of whole numbers from 1 on"),
        (trace_row(1, acc_eagle={"acc_len": [1, 2], "token_ids": [1]}), [], "2 positions and 1 token ids"),
        ({"acc_eagle": {"acc_len": [1, 2]}}, [], "has no prompt_token_ids"),
        (trace_row(1, acc_eagle={"acc_len": [1]}), ["--arm", "eagle"], "no answer of eagle has a step"),
        (trace_row(1, acc_ngram={"acc_len": []}), ["--with", "ngram"], "no answer of ngram has a step"),
        (trace_row(1, generated_token_ids=[1]), ["--with", "replay"], "none can be replayed"),
        (trace_row(1), ["--step-cost", "/nowhere"], "/nowhere: No such file or directory"),
    ],
)
def test_what_is_no_trace_is_refused_with_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], row: dict[str, Any], arguments: list[str], says: str
) -> None:
    assert exit_code(["oracle", written(tmp_path, [row]), *arguments]) == Exit.BAD_INPUT
    assert says in " ".join(capsys.readouterr().err.split())


def test_a_step_cost_that_does_not_know_the_drafter_says_whom_it_knows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    row = trace_row(1)
    row["acc_medusa"] = row["acc_eagle"]
    file = written(tmp_path, [row])
    assert exit_code(["oracle", file, "--arm", "medusa", "--step-cost", "published-h100"]) == Exit.BAD_INPUT
    assert "knows ngram, eagle, eagle3, and not medusa" in capsys.readouterr().err


def test_a_place_where_nothing_is_is_told_as_such(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(["oracle", "nowhere.jsonl"]) == Exit.BAD_INPUT
    assert "nowhere.jsonl: there is no such file or folder" in capsys.readouterr().err


@pytest.mark.process
@pytest.mark.parametrize("kind", ["html", "svg", "png"])
def test_bounds_and_the_difference_of_two_drafters_are_drawn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    file, plot = written(tmp_path, [trace_row(number) for number in range(8)]), tmp_path / f"plot.{kind}"
    priced = ["--with", "ngram", "--step-cost", "published-h100", "--batch", "8,1", "--plot", str(plot)]
    assert exit_code(["oracle", file, *priced]) == Exit.OK
    assert f"written: {plot}" in capsys.readouterr().err
    data = plot.read_bytes()
    assert data.startswith({"html": b"<!doctype html>", "svg": b"<?xml", "png": b"\x89PNG"}[kind])
    if kind == "html":
        assert data.count(b"<svg ") == 2
        assert b"eagle has " in data
        assert b"What an oracle gains" in data


def test_a_picture_of_nothing_or_of_no_known_form_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = written(tmp_path, [trace_row(number) for number in range(8)])
    for plot, says in [("a.html", "add --step-cost and --batch, or --with"), ("a.gif", "end it with .html, .svg or")]:
        assert exit_code(["oracle", file, "--plot", str(tmp_path / plot)]) == Exit.BAD_INPUT
        assert says in " ".join(capsys.readouterr().err.split())
    assert exit_code(["oracle", file, "--with", "ngram", "--plot", str(tmp_path / "no/a.svg")]) == Exit.BAD_INPUT
    assert "give a file in a folder that is there" in " ".join(capsys.readouterr().err.split())
