"""Traffic mixes: sums over categories stay exact, and unmeasured categories are rejected."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from specbench_api.outcome.termination import Exit
from specbench_client.analysis.explanation.traffic_mix import (
    MixEstimate,
    normalized_shares,
    project_mix,
    request_shares,
)
from specbench_client.cli import exit_code
from specbench_client.metrics.pairing import ARM, BASELINE, STEPS, Pairs
from specbench_testing.local_results import store_results
from specbench_testing.present import present
from specbench_testing.synthetic_records import SyntheticRun
from specbench_testing.tables import pairs_of_frame

pytestmark = pytest.mark.runs

UID = "0190a000-0000-7000-8000-000000000000"
TRUTH = {"code": (40, 10, 400.0, 100.0), "chat": (200, 160, 3000.0, 2500.0)}
"""Category → tokens, steps, and stream time in ms of the baseline and of the arm."""


def pairs_of(
    truth: dict[str, tuple[int, int, float, float]], prompts: int = 12, noise: float = 0.0, seed: int = 1
) -> Pairs:
    return pairs_of_frame(frame_of_pairs(truth, prompts, noise, seed))


def frame_of_pairs(
    truth: dict[str, tuple[int, int, float, float]], prompts: int = 12, noise: float = 0.0, seed: int = 1
) -> pd.DataFrame:
    """Return pairs with the times of the truth, multiplied by noise with the mean 1."""
    rng, rows = np.random.default_rng(seed), list[dict[str, object]]()
    for name, (tokens, steps, baseline, arm) in truth.items():
        for number in range(prompts):
            row: dict[str, object] = {"repeat": 0.0, "prompt_id": f"{name}-{number}", "pass": 0, "turn": 0.0}
            for side, ms in ((BASELINE, baseline), (ARM, arm)):
                took = ms * 1e6 * (float(rng.gamma(1 / noise**2, noise**2)) if noise else 1.0)
                columns_of_side = {"category": name, "input_tokens": 9.0, "tokens": float(tokens), "intended_ns": 0.0}
                columns_of_side |= {
                    "first_token_ns": took / 10,
                    "last_token_ns": took,
                    "finish_reason": "stop",
                    "output_sha256": "x",
                    STEPS: float(steps),
                }
                row |= {f"{column}{side}": each for column, each in columns_of_side.items()}
            rows.append(row)
    return pd.DataFrame(rows)


def projected(pairs: Pairs, given: dict[str, float]) -> MixEstimate:
    return present(project_mix(pairs, given, seed=1))


@pytest.mark.parametrize(("column", "broken"), [("last_token_ns", -1e15), ("tokens", 0.0)])
def test_pair_without_duration_or_tokens_is_excluded_from_a_mix(column: str, broken: float) -> None:
    """Such records invalidate their cell, but its figures are still computed and must not become NaN."""
    frame = frame_of_pairs(TRUTH)
    frame.loc[0, column + ARM] = broken
    estimate = projected(pairs_of_frame(frame), {"code": 0.5, "chat": 0.5})
    assert {each.category: each.speedup for each in estimate.categories} == pytest.approx({"code": 4.0, "chat": 1.2})
    frame[column + ARM] = broken
    assert project_mix(pairs_of_frame(frame), {"code": 0.5, "chat": 0.5}, seed=1) is None


@pytest.mark.parametrize("code", [0.1, 0.5, 0.9])
def test_mix_speedup_is_the_harmonic_mean_by_baseline_time_share(code: float) -> None:
    estimate = projected(pairs_of(TRUTH), {"code": code, "chat": 1 - code})
    time = {"code": code * 400, "chat": (1 - code) * 3000}
    whole = sum(time.values())
    harmonic = 1 / (time["code"] / whole / 4.0 + time["chat"] / whole / 1.2)
    assert estimate.speedup.value == pytest.approx(harmonic)
    steps, later = code * 10 + (1 - code) * 160, code * 39 + (1 - code) * 199
    assert estimate.acceptance_length.value == pytest.approx(later / steps)
    assert harmonic < code * 4.0 + (1 - code) * 1.2, "the mean weighted by requests overestimates the speed-up"
    assert [round(each.time_share, 9) for each in estimate.categories] == [
        round(time[name] / whole, 9) for name in time
    ]


def explained(results: Path, capsys: pytest.CaptureFixture[str], *options: str) -> tuple[dict[str, Any], str]:
    """Run the command; return its document and what it prints on stderr."""
    assert exit_code(["analyze", "explain", str(results), *options, "--output", "json"]) == Exit.OK
    printed = capsys.readouterr()
    return json.loads(printed.out), printed.err


def test_token_shares_convert_to_request_shares() -> None:
    pairs = pairs_of(TRUTH)
    given = present(request_shares(normalized_shares({"code": 1, "chat": 1}), pairs))
    assert given == pytest.approx({"code": 5 / 6, "chat": 1 / 6})
    assert [each.tokens_share for each in projected(pairs, given).categories] == pytest.approx([0.5, 0.5])


def test_missing_category_gives_no_prediction_and_missing_steps_no_acceptance_length() -> None:
    pairs = pairs_of(TRUTH)
    assert project_mix(pairs, {"code": 0.5, "poetry": 0.5}, 1) is None
    without_steps = pairs_of_frame(frame_of_pairs(TRUTH).assign(**{STEPS + ARM: np.nan}))
    estimate = projected(without_steps, {"code": 0.5, "chat": 0.5})
    assert estimate.acceptance_length.value is None
    assert estimate.speedup.value is not None
    assert [each.acceptance_length for each in estimate.categories] == [None, None]


@pytest.mark.parametrize("tokens", [0.0, np.nan])
def test_token_shares_do_not_convert_when_tokens_were_not_counted(tokens: float) -> None:
    frame = frame_of_pairs(TRUTH)
    counted = frame["tokens" + BASELINE].mask(frame["category" + BASELINE] == "code", tokens)
    uncounted = pairs_of_frame(frame.assign(**{"tokens" + BASELINE: counted}))
    assert request_shares({"code": 0.5, "chat": 0.5}, uncounted) is None
    assert request_shares({"code": 0.5, "chat": 0.5}, pairs_of_frame(frame)) is not None


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mix") / "out"
    store_results(SyntheticRun(prompts=12, concurrency=(1, 2), repeats=1), folder, UID)
    assert exit_code(["report", str(folder), "--output", "csv", "--to", str(folder.parent / "table.csv")]) == Exit.OK
    return folder


def test_explain_command_accepts_a_mix_as_shares_or_as_a_prompt_file(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mine.jsonl"
    rows = [
        {"id": f"{at}", "prompt": f"word {at}", "category": name} for at, name in enumerate(["code"] * 3 + ["chat"])
    ]
    file.write_text("\n".join(json.dumps(row) for row in rows) + "\n")
    of_shares, of_file = (explained(results, capsys, "--mix", mix)[0] for mix in ("code=3,chat=1", str(file)))
    assert of_shares == of_file
    assert [each["load"] for each in of_shares["mixes"]] == ["1", "2"]
    assert of_shares["mixes"][0]["categories"][0]["requestsShare"] == pytest.approx(0.75)
    file.write_text('{"id": "a", "prompt": "one"}\n{"id": "b", "prompt": "two", "category": "code"}\n')
    assert exit_code(["analyze", "explain", str(results), "--mix", str(file)]) == Exit.BAD_INPUT
    assert "1 of 2 prompts have no category" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("mix", "message"),
    [
        ("code=0.5,poetry=0.2,verse=0.3", "poetry, verse of the mix was not measured on workload chat"),
        ("code=0.5,code=0.5", "repeats a category"),
        ("code=-1", "is not CATEGORY=SHARE"),
        ("code=nan", "is not CATEGORY=SHARE"),
        ("code=1e308,chat=1e308", "is not CATEGORY=SHARE"),
        ("", "--mix: is empty"),
        ("code=0", "every share is 0"),
        ("nowhere.jsonl", "No such file"),
    ],
)
def test_impossible_mix_is_rejected_with_a_remedy(
    results: Path, mix: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(["analyze", "explain", str(results), "--mix", mix]) == Exit.BAD_INPUT
    assert message in capsys.readouterr().err


def test_repeated_mix_options_form_one_mix_and_scaling_is_printed(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = explained(results, capsys, "--mix", "code=0.5,chat=0.3")
    assert one == explained(results, capsys, "--mix", "code=0.5", "--mix", "chat=0.3")
    assert "sum to 0.8; they are scaled to: code 62.5%, chat 37.5%" in one[1]
    assert "sum to" not in explained(results, capsys, "--mix", "code=50,chat=50")[1]


def test_explain_without_a_mix_prints_the_factors(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(["analyze", "explain", str(results)]) == Exit.OK
    assert "measured = predicted × prefill × length" in capsys.readouterr().out
    assert explained(results, capsys, "--workload", "chat")[0]["cells"][0]["arm"] == "ngram"
    assert exit_code(["analyze", "explain", str(results), "--workload", "other"]) == Exit.BAD_INPUT
