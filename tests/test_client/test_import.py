"""`specbench import`: figures of other benchmarks against the truth of the server that they measured.

The files in `peer_results` were written by these benchmarks against `specbench simulate`, whose truth is in
`truth.json` (`benchmarks/imports` does it again). Bulky fields that no reader uses are removed.
"""

from __future__ import annotations

import json
import math
import re
from copy import deepcopy
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from specbench_api.outcome.exit_codes import Exit
from specbench_client.cli import exit_code
from specbench_client.errors import BadInput
from specbench_client.peer_results.reading import PeerFigure, PeerReading, emitted_length
from specbench_client.peer_results.registry import read_peer_file
from specbench_client.peer_results.vllm_sglang import UNSEEN_TEXT
from specbench_client.trust.registry import CHECK_BY_NAME

PEERS = Path(__file__).parent / "peer_results"
TRUTH = json.loads((PEERS / "truth.json").read_text())
VLLM = json.loads((PEERS / "vllm-eagle3.json").read_text())
AL = "acceptance_length_emitted_pooled"
SUMMARIES = {
    "vllm-none": "vllm-none.json",
    "vllm-eagle3": "vllm-eagle3.json",
    "sglang-none": "sglang-none.jsonl",
    "sglang-eagle3": "sglang-eagle3.jsonl",
    "aiperf-eagle3": "aiperf-eagle3/profile_export_aiperf.json",
    "guidellm-eagle3": "guidellm-eagle3.json",
    "guidellm-csv": "guidellm-eagle3.csv",
    "inference-perf-eagle3": "inference-perf-eagle3/stage_0_lifecycle_metrics.json",
}
REQUESTS = {
    **{name: file for name, file in SUMMARIES.items() if name.startswith(("vllm", "sglang", "guidellm-eagle3"))},
    "aiperf-eagle3": "aiperf-eagle3/profile_export.jsonl",
    "inference-perf-eagle3": "inference-perf-eagle3/per_request_lifecycle_metrics.json",
}


def _one(file: str | Path) -> PeerReading:
    (reading,) = read_peer_file(PEERS / file)
    return reading


def _figures(reading: PeerReading) -> dict[str, PeerFigure]:
    return {figure.name: figure for figure in reading.result.figures}


@pytest.mark.parametrize("name", SUMMARIES)
def test_a_comparable_figure_of_a_summary_agrees_with_the_truth(name: str) -> None:
    """TPOT within 1 %, acceptance length within 0.5 %; each peer has at least one comparable TPOT."""
    figures = [figure for figure in _one(SUMMARIES[name]).result.figures if figure.name in TRUTH[name]]
    known = {figure.name: figure.value for figure in figures if figure.value is not None}
    assert any(figure.startswith("tpot") for figure in known)
    for figure, value in known.items():
        assert value == pytest.approx(TRUTH[name][figure], rel=0.005 if figure == AL else 0.01), figure
    assert all(figure.reason for figure in figures if figure.value is None)


@pytest.mark.parametrize("name", SUMMARIES)
def test_two_figures_of_a_summary_have_different_names(name: str) -> None:
    reading = _one(SUMMARIES[name])
    assert len(_figures(reading)) == len(reading.result.figures)


@pytest.mark.parametrize("name", REQUESTS)
def test_the_requests_of_a_file_agree_with_the_truth(name: str) -> None:
    """Their time per output token, and their acceptance length where the file has drafts."""
    requests = [each for each in _one(REQUESTS[name]).requests if each.error is None]
    assert len(requests) == 24
    spans = [(r.last_ns - r.first_ns) / (r.output_tokens - 1) / 1e6 for r in requests]  # type: ignore[operator]
    assert sum(spans) / 24 == pytest.approx(TRUTH[name]["tpot_ms_mean"], rel=0.01)
    if name in ("aiperf-eagle3", "guidellm-eagle3"):
        tokens, steps, accepted = (
            sum(getattr(each, field) for each in requests)
            for field in ("output_tokens", "draft_steps", "accepted_tokens")
        )
        assert emitted_length(tokens, 24, steps, accepted) == pytest.approx(TRUTH[name][AL], rel=0.005)


@pytest.mark.parametrize(
    ("file", "field", "reason"),
    [
        ("guidellm-eagle3.json", "time_per_output_token_ms.mean", "contains the time to the first token"),
        ("guidellm-eagle3.json", "inter_token_latency_ms.p50", "percentile over tokens"),
        ("vllm-eagle3.json", "mean_itl_ms", "time between chunks"),
        ("vllm-eagle3.json", "output_throughput", "the start and the end"),
        ("vllm-eagle3.json", "total_token_throughput", "prompt tokens"),
        ("aiperf-eagle3/profile_export_aiperf.json", "inter_chunk_latency.avg", "time between chunks"),
        (
            "inference-perf-eagle3/stage_0_lifecycle_metrics.json",
            "successes.latency.inter_token_latency.mean",
            "chunks",
        ),
    ],
)
def test_a_figure_of_another_definition_is_refused_with_the_reason(file: str, field: str, reason: str) -> None:
    figure = next(each for each in _one(file).result.figures if each.field == field)
    assert figure.value is None
    assert reason in figure.reason


def test_cut_tokens_are_removed_from_vllms_acceptance_length() -> None:
    """vLLM prints 2.62; the answers had 2.558, because accepted tokens were cut off at the ends."""
    figure = _figures(_one("vllm-eagle3.json"))[AL]
    assert figure.printed == pytest.approx(2.6202, abs=1e-4)
    assert figure.value == pytest.approx(TRUTH["vllm-eagle3"][AL], rel=1e-4)


def test_steps_without_drafts_count_as_steps() -> None:
    """Ten steps of which four drafted and accepted five tokens: 15 tokens after the first."""
    assert emitted_length(16, 1, 4, 5) == pytest.approx(1.5)


def _import(tmp_path: Path, *arguments: str, code: Exit = Exit.OK) -> dict[str, Any]:
    assert exit_code(["import", *arguments, "--results", str(tmp_path / "results")]) == code
    runs = list((tmp_path / "results/runs").glob("local/*/*/summary.json"))
    assert len(runs) == 1
    found: dict[str, Any] = json.loads(runs[0].read_text())
    return found


@pytest.mark.usefixtures("undrawn")
@pytest.mark.runs
def test_two_files_become_a_run_with_a_paired_speedup(tmp_path: Path) -> None:
    """`report`, `decide` and `compare` read it; chunks are verified steps."""
    arguments = [str(PEERS / "vllm-eagle3.json"), "--baseline", str(PEERS / "vllm-none.json"), "--arm", "eagle3"]
    baseline, arm = _import(tmp_path, *arguments)["cells"]
    assert (baseline["arm"], arm["arm"], arm["valid"]) == ("none", "eagle3", True)
    assert arm["figures"]["tpot_ms_mean"]["value"] == pytest.approx(TRUTH["vllm-eagle3"]["tpot_ms_mean"], rel=0.03)
    assert arm["figures"][AL]["value"] == pytest.approx(TRUTH["vllm-eagle3"][AL], rel=0.03)  # the steady requests only
    assert arm["tpotSpeedup"]["value"] == pytest.approx(2.3, rel=0.05)
    assert arm["figures"]["ttft_ms_p50"]["value"] < 100  # waiting for a stream is not the client's delay
    results = str(tmp_path / "results")
    for command in (["report", results, "--latest"], ["compare", results, results]):
        assert exit_code(command) == Exit.OK, command
    assert exit_code(["decide", results, "--latest"]) == Exit.UNTRUSTWORTHY, "one repeat is inconclusive"


@pytest.mark.usefixtures("undrawn")
@pytest.mark.runs
def test_importing_the_same_files_again_finds_the_same_run(tmp_path: Path) -> None:
    for _ in range(2):
        _import(tmp_path, str(PEERS / "guidellm-eagle3.json"))


@pytest.mark.usefixtures("undrawn")
@pytest.mark.runs
def test_files_of_one_arm_and_load_are_repeats(tmp_path: Path) -> None:
    second = _write(tmp_path, {**VLLM, "ttfts": [seconds * 1.01 for seconds in VLLM["ttfts"]]})
    summary = _import(tmp_path, str(PEERS / "vllm-eagle3.json"), str(second))
    assert [len(cell["points"]) for cell in summary["cells"]] == [2]


@pytest.mark.parametrize("of_baseline", [False, True])
def test_a_copy_of_a_file_is_no_repeat(of_baseline: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Three copies would be three repeats without any spread: a confident speed-up from one measurement."""
    copy = str(_write(tmp_path, (PEERS / "vllm-eagle3.json").read_text(), "copy.json"))
    given = [str(PEERS / "vllm-eagle3.json"), *(["--baseline"] if of_baseline else []), copy]
    assert exit_code(["import", *given, "--results", str(tmp_path / "results")]) == Exit.BAD_INPUT
    assert "same requests" in capsys.readouterr().err


@pytest.mark.usefixtures("undrawn")
@pytest.mark.runs
def test_a_baseline_whose_file_has_drafts_is_reported(tmp_path: Path) -> None:
    """It does not decode one token per step, and what is faster than it is not faster than plain decoding."""
    arguments = [str(PEERS / "vllm-none.json"), "--baseline", str(PEERS / "guidellm-eagle3.json")]
    summary = _import(tmp_path, *arguments, code=Exit.UNTRUSTWORTHY)
    assert summary["cells"][0]["figures"][AL]["value"] == pytest.approx(TRUTH["guidellm-eagle3"][AL], rel=0.03)
    assert "BaselineDrafted" in {finding["check"] for finding in summary["findings"]}


@pytest.mark.runs
def test_without_send_times_there_is_no_throughput(tmp_path: Path) -> None:
    """SGLang stores none: latencies are there, the throughput is missing, and the records are valid."""
    arguments = [str(PEERS / "sglang-eagle3.jsonl"), "--baseline", str(PEERS / "sglang-none.jsonl"), "--arm", "eagle3"]
    _, arm = _import(tmp_path, *arguments)["cells"]
    assert arm["valid"]
    assert arm["figures"]["output_tps"].get("value") is None
    assert arm["figures"][AL].get("value") is None  # the file has no steps
    assert arm["figures"]["tpot_ms_mean"]["value"] == pytest.approx(TRUTH["sglang-eagle3"]["tpot_ms_mean"], rel=0.01)
    records = [pq.read_table(part) for part in (tmp_path / "results").rglob("points/*/records/*.parquet")]
    assert sum(part.column("sent_ns").null_count for part in records) == 48


@pytest.mark.usefixtures("undrawn")
@pytest.mark.runs
def test_requested_lengths_are_not_taken_for_the_answers_tokens(tmp_path: Path) -> None:
    """SGLang stores the requested length of an answer that ended early if the server reports no count."""
    (line,) = (PEERS / "sglang-eagle3.jsonl").read_text().splitlines()
    data = json.loads(line)
    tokens = data["total_output_tokens"]
    honest, early = (
        _one(_write(tmp_path, {**data, "total_output_tokens_retokenized": counted}, f"{counted}.jsonl"))
        for counted in (tokens - data["completed"], tokens // 2)
    )
    assert _figures(honest)["tpot_ms_mean"].value is not None
    assert {request.output_tokens for request in honest.requests} == {64}
    for name in ("tpot_ms_mean", "tpot_ms_p99", "output_tokens_mean"):
        assert _figures(early)[name].value is None
        assert "requested lengths" in _figures(early)[name].reason
    assert _figures(early)["e2e_from_send_ms_mean"].value is not None
    assert {request.output_tokens for request in early.requests} == {None}
    (cell,) = _import(tmp_path, str(tmp_path / f"{tokens // 2}.jsonl"))["cells"]
    assert cell["figures"]["tpot_ms_mean"].get("value") is None
    assert cell["figures"]["ttft_ms_p50"]["value"] == pytest.approx(44.4, rel=0.01)


@pytest.mark.parametrize("field", ["mean_tpot_ms", "total_output_tokens", "spec_decode_acceptance_length"])
def test_a_figure_below_zero_is_refused(field: str, tmp_path: Path) -> None:
    figures = _one(_write(tmp_path, {**VLLM, field: -abs(VLLM[field])})).result.figures
    refused = [figure for figure in figures if figure.reason.endswith("the file is damaged")]
    assert refused
    assert all(figure.value is None or figure.value >= 0 for figure in figures)


SUMMARY = str(PEERS / "aiperf-eagle3/profile_export_aiperf.json")


@pytest.mark.usefixtures("undrawn")
@pytest.mark.runs
@pytest.mark.parametrize(
    ("file", "baseline", "code"),
    [
        ("guidellm-eagle3.csv", SUMMARY, Exit.UNTRUSTWORTHY),
        ("vllm-eagle3.json", SUMMARY, Exit.UNTRUSTWORTHY),
        ("vllm-eagle3.json", "sglang-none.jsonl", Exit.UNTRUSTWORTHY),
        ("vllm-eagle3.json", "vllm-none.json", Exit.OK),
    ],
)
def test_a_comparison_that_gives_no_speedup_has_an_exit_code_of_its_own(
    file: str, baseline: str, code: Exit, tmp_path: Path
) -> None:
    """Summaries have no requests to pair, and files of two benchmarks may share no prompt."""
    given = [str(PEERS / file), "--baseline", str(PEERS / baseline)]
    assert exit_code(["import", *given, "--results", str(tmp_path / "results")]) == code


def test_every_remedy_of_an_imported_run_is_free_of_our_fields() -> None:
    """Except remedies of checks whose data no import has: client health, launches, facts, specs, judged answers,
    cached tokens.

    `--baseline` is an option of the import, and `--spec-…` one of llama.cpp.
    """
    unreachable = {
        "RequestsQueued",
        "TokenCountMismatch", "PrematureLengthStop", "ClientSaturated", "UnexpectedOutputLengths",
        "DatasetRowsMissing", "KvCacheReduced", "SamplingDiffersFromLog", "DrafterCarryover", "ArmSpecificArguments",
        "ArmEnvironmentsDiffer", "LaunchesDiffer", "MissingPoints", "AnswersWorse", "AnswersFlawed",
        "ReasoningNotAsRequested", "AcceptanceUnconfirmed", "PromptsSentAgain",
    }  # fmt: skip
    ours = re.compile(
        r"load\.[a-z]|`load`|placement|output\.|sampling\.|engine\.args|specbench (measure|run)"
        r"|--(?!baseline|spec-)|json`"
    )
    found = {check for check, each in CHECK_BY_NAME.items() if ours.search(each.remedy_for(imported=True, soak=False))}
    assert found <= unreachable


def _write(tmp_path: Path, data: Any, name: str = "file.json") -> Path:
    path = tmp_path / name
    path.write_text(data if isinstance(data, str) else json.dumps(data))
    return path


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": 1}', "not a result file that specbench recognises"),
        ("a: [", "not a result file that specbench recognises"),
        ('{"mean_ttft_ms": 1, "model_id": "m", "total_outpu', "is not valid JSON"),
        ('{"mean_ttft_ms": 1, "model_id": "m", "total_output_tokens": 1, "ttfts": [1], "output_lens": []}', "damaged"),
    ],
)
def test_a_file_that_cannot_be_read_is_named_with_the_remedy(text: str, message: str, tmp_path: Path) -> None:
    path = _write(tmp_path, text, "bad.json")
    with pytest.raises(BadInput, match=message) as raised:
        read_peer_file(path)
    assert str(path) in str(raised.value)


@pytest.mark.parametrize(
    ("file", "path", "value"),
    [
        ("vllm-none.json", ("model_id",), True),
        ("guidellm-eagle3.json", ("benchmarks", 0, "requests", "errored"), "x"),
        ("guidellm-eagle3.json", ("benchmarks", 0, "requests", "successful", 0, "info", "timings"), "before"),
        ("inference-perf-eagle3/per_request_lifecycle_metrics.json", (0,), True),
        ("inference-perf-eagle3/per_request_lifecycle_metrics.json", (3, "start_time"), -1e308),
        ("aiperf-eagle3/profile_export_aiperf.json", ("aiperf_version",), {}),
        ("guidellm-eagle3.json", ("benchmarks", 0, "requests", "successful", 0, "output_tokens"), 10**30),
    ],
)
def test_a_file_of_another_form_is_refused(file: str, path: tuple[str | int, ...], value: Any, tmp_path: Path) -> None:
    """Also times that contradict one another: an answer before its request would be a negative latency."""
    data = json.loads((PEERS / file).read_text())
    holder = data
    for step in path[:-1]:
        holder = holder[step]
    if value == "before":
        value = {**holder[path[-1]], "request_start": holder[path[-1]]["first_token_iteration"] + 1}
    holder[path[-1]] = value
    changed = _write(tmp_path, data)
    with pytest.raises(BadInput, match=re.escape(str(changed))):
        read_peer_file(changed)


@pytest.mark.parametrize("gap", [10**400, 1e308, "x", None, -0.01])
def test_a_gap_that_is_no_time_is_refused(gap: object, tmp_path: Path) -> None:
    """Also an integer that no float can hold, and seconds that no clock reaches: without it, TPOT would be too low."""
    data = json.loads((PEERS / "vllm-none.json").read_text())
    data["itls"][0] = [*data["itls"][0][1:], gap]
    with pytest.raises(BadInput, match=r"request 1: itls\.\d+ is .*not a number from 0"):
        read_peer_file(_write(tmp_path, data))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda data: (data["output_lens"].__setitem__(0, 10**30), data.update(total_output_tokens=None)),
            "request 1: output_lens is 1000",
        ),
        (lambda data: data["output_lens"].__setitem__(0, 2.5), "request 1: output_lens is 2.5"),
        (lambda data: data["start_times"].__setitem__(0, "x"), "request 1: start_times is x"),
        (lambda data: data["itls"].__setitem__(0, None), "request 1: itls is null"),
        (lambda data: data.update(ttfts=[1000 * each for each in data["ttfts"]]), "mean_ttft_ms .* another unit"),
        (lambda data: data.update(total_output_tokens=4 * data["total_output_tokens"]), "but its requests have"),
        (lambda data: data.update(completed=5), "5 requests were answered .* but 24 of 24 are"),
        (lambda data: data.update(median_ttft_ms=900.0, p99_ttft_ms=2.0), "percentiles of ttft are out of order"),
        (lambda data: data["ttfts"].__setitem__(0, -1.0), "request 1: its time to the first token"),
        (lambda data: data.update(completed=25), "25 requests were answered .* but 24 of 24 are"),
    ],
)
def test_requests_that_cannot_be_are_refused(change: Any, message: str, tmp_path: Path) -> None:
    """A huge count overflowed, a negative time counted as a failed request, and totals contradicted the requests."""
    data = deepcopy(VLLM)
    change(data)
    with pytest.raises(BadInput, match=message):
        read_peer_file(_write(tmp_path, data))


@pytest.mark.parametrize(("unseen", "errors"), [(2, [""] * 2), (24, [""] * 24), (2, ["timeout"] * 2)])
def test_answers_whose_text_the_benchmark_did_not_see_have_failed(
    unseen: int, errors: list[str], tmp_path: Path
) -> None:
    """SGLang counts the tokens of text in a field that it does not read, and their time to the first token is 0."""
    data = deepcopy(VLLM)
    data["ttfts"][:unseen], data["errors"][:unseen] = [0.0] * unseen, errors
    failed = 0 if errors[0] == "" else unseen
    data["completed"] -= failed
    data["total_output_tokens"] -= sum(data["output_lens"][:failed])
    (reading,) = read_peer_file(_write(tmp_path, data))
    found = [each.error for each in reading.requests if each.error is not None]
    assert found == [each or UNSEEN_TEXT for each in errors]
    assert reading.result.requests == 24 - failed


@pytest.mark.parametrize("name", ["generated_texts", "errors"])
def test_half_a_character_in_a_text_is_replaced(name: str, tmp_path: Path) -> None:
    """An answer may end within an emoji, and JSON can hold what UTF-8 cannot."""
    data = deepcopy(VLLM)
    data["generated_texts"] = ["yes"] * 24
    data[name][0] = "\ud83d"
    if name == "errors":
        data["completed"], data["ttfts"][0] = 23, 0.0
        data["total_output_tokens"] -= data["output_lens"][0]
    (reading,) = read_peer_file(_write(tmp_path, data))
    assert (reading.requests[0].text if name == "generated_texts" else reading.requests[0].error) == "\ufffd"


ROWS = "aiperf-eagle3/profile_export.jsonl"
GUIDELLM_ROW = ("benchmarks", 0, "requests", "successful", 1)
LIFECYCLE = "inference-perf-eagle3/per_request_lifecycle_metrics.json"


def _with(file: str, path: tuple[str | int, ...], value: Any, tmp_path: Path) -> Path:
    """Return a copy of a file with another value at a path."""
    text = (PEERS / file).read_text()
    is_lines = file.endswith("jsonl")
    data: Any = [json.loads(line) for line in text.splitlines()] if is_lines else json.loads(text)
    holder = data
    for step in path[:-1]:
        holder = holder[step]
    holder[path[-1]] = value
    changed = "\n".join(map(json.dumps, data)) if is_lines else data
    return _write(tmp_path, changed, Path(file).name)


@pytest.mark.parametrize("value", [0, -1, math.nan, "abc", [], True, 1e300])
@pytest.mark.parametrize(
    ("file", "path", "place"),
    [
        (ROWS, (1, "metrics", "time_to_first_token", "value"), "line 2: metrics.time_to_first_token.value"),
        (ROWS, (1, "metrics", "request_latency", "value"), "line 2: metrics.request_latency.value"),
        (ROWS, (1, "metadata", "request_start_ns"), "line 2: metadata.request_start_ns"),
        (
            "guidellm-eagle3.json",
            (*GUIDELLM_ROW, "info", "timings", "first_token_iteration"),
            "request 2: info.timings.first_token_iteration",
        ),
        (LIFECYCLE, (1, "start_time"), "request 2: start_time"),
        (LIFECYCLE, (1, "end_time"), "request 2: end_time"),
    ],
)
def test_a_time_that_cannot_be_is_refused_with_its_place(
    file: str, path: tuple[str | int, ...], place: str, value: object, tmp_path: Path
) -> None:
    """A time to the first token of 0 would be shown as a measured 0."""
    changed = _with(file, path, value, tmp_path)
    with pytest.raises(BadInput, match=re.escape(f"{changed}, {place} is {str(value)[:40]}")):
        read_peer_file(changed)


@pytest.mark.parametrize("value", [-3, math.nan, 2.5, "x", [], True, 1e9])
@pytest.mark.parametrize(
    ("file", "path", "place"),
    [
        (ROWS, (1, "metrics", "usage_completion_tokens", "value"), "line 2: metrics.usage_completion_tokens"),
        ("guidellm-eagle3.json", (*GUIDELLM_ROW, "output_tokens"), "request 2: output_tokens"),
        (
            LIFECYCLE,
            (1, "info", "response_metrics", "server_usage", "completion_tokens"),
            "request 2: info.response_metrics.server_usage.completion_tokens",
        ),
    ],
)
def test_a_count_that_cannot_be_is_refused_with_its_place(
    file: str, path: tuple[str | int, ...], place: str, value: object, tmp_path: Path
) -> None:
    with pytest.raises(BadInput, match=re.escape(place)):
        read_peer_file(_with(file, path, value, tmp_path))
    (reading,) = read_peer_file(_with(file, path, 0, tmp_path))
    assert sum(each.output_tokens is None for each in reading.requests) == 1, "an answer of 0 tokens was not counted"


@pytest.mark.parametrize(
    ("file", "path", "value", "message"),
    [
        (ROWS, (1, "metrics", "time_to_first_token", "unit"), "s", "line 2: its times contradict"),
        (ROWS, (1, "metrics", "request_latency", "unit"), "ns", "line 2: its times contradict"),
        (ROWS, (1, "metrics", "request_latency", "unit"), "h", "line 2: request_latency.unit is h"),
        (ROWS, (1, "metadata", "request_start_ns"), 1795709473309, "line 2: its times contradict"),
        (ROWS, (1, "metrics", "inter_chunk_latency", "value"), [1.0, -5], "line 2: .*value.1 is -5"),
        ("guidellm-eagle3.json", (*GUIDELLM_ROW, "info", "timings", "request_end"), 1.5, "request 2: its times"),
        (LIFECYCLE, (1, "end_time"), 0.5, "request 2: its times contradict"),
        (ROWS, (1, "metrics", "inter_chunk_latency", "value"), "x", "line 2: .*value is x, which is not a list"),
        (LIFECYCLE, (1, "info", "response_metrics", "output_token_times"), ["x"], "request 2: .*times.0 is x"),
        (LIFECYCLE, (1, "info", "response_metrics", "output_token_times"), [0.0], "request 2: its times contradict"),
        ("aiperf-eagle3/profile_export_aiperf.json", ("request_latency", "unit"), "h", "request_latency.unit is h"),
    ],
)
def test_times_in_another_unit_are_refused(
    file: str, path: tuple[str | int, ...], value: object, message: str, tmp_path: Path
) -> None:
    with pytest.raises(BadInput, match=message):
        read_peer_file(_with(file, path, value, tmp_path))


def test_times_that_older_versions_of_guidellm_wrote_beside_the_request_are_read(tmp_path: Path) -> None:
    older = {
        "request_start": "start_time",
        "first_token_iteration": "first_token_time",
        "last_token_iteration": "last_token_time",
        "request_end": "end_time",
    }
    file = "guidellm-eagle3.json"
    data = json.loads((PEERS / file).read_text())
    for row in data["benchmarks"][0]["requests"]["successful"]:
        row.update({name: row["info"]["timings"].pop(newer) for newer, name in older.items()})
    assert _one(_write(tmp_path, data)).requests == _one(file).requests


def test_units_are_converted_and_an_empty_list_of_gaps_is_no_gap(tmp_path: Path) -> None:
    plain = _one(ROWS).requests[1]
    data = [json.loads(line) for line in (PEERS / ROWS).read_text().splitlines()]
    latency = data[1]["metrics"]["request_latency"]
    latency.update(value=latency["value"] / 1000, unit="s")
    data[1]["metrics"]["inter_chunk_latency"]["value"] = []
    (reading,) = read_peer_file(_write(tmp_path, "\n".join(map(json.dumps, data)), "rows.jsonl"))
    assert (reading.requests[1].chunk_ns, reading.requests[1].last_ns) == (None, plain.last_ns)


@pytest.mark.parametrize("field", ["mean_ttft_ms", "p99_tpot_ms"])
def test_a_time_of_0_in_a_summary_is_not_comparable(field: str, tmp_path: Path) -> None:
    figures = _one(_write(tmp_path, {**VLLM, "median_tpot_ms": None, field: 0})).result.figures
    (figure,) = [each for each in figures if each.field == field]
    assert (figure.printed, figure.value) == (0.0, None)


def test_a_percentile_of_too_few_requests_is_not_comparable() -> None:
    """24 requests have a 95th percentile, and no 99th."""
    figures = _figures(_one("vllm-eagle3.json"))
    assert figures["ttft_from_send_ms_p99"].value is None
    assert "100 requests" in figures["ttft_from_send_ms_p99"].reason
    assert {name: each.value for name, each in figures.items() if name.endswith("p50")} == {
        name: each.printed for name, each in figures.items() if name.endswith("p50")
    }


def test_a_result_without_answers_has_no_acceptance_length(tmp_path: Path) -> None:
    summary = {name: value for name, value in VLLM.items() if not isinstance(value, list)}
    figures = _figures(_one(_write(tmp_path, {**summary, "completed": 0, "total_output_tokens": 0})))
    assert figures[AL].value is None


def test_a_rate_that_grew_is_no_load(tmp_path: Path) -> None:
    ramped = {**VLLM, "ramp_up_strategy": "linear", "ramp_up_start_rps": 1, "ramp_up_end_rps": 10}
    assert _one(_write(tmp_path, ramped)).result.level is None
    assert _one(_write(tmp_path, {**ramped, "ramp_up_strategy": None})).result.level is not None


@pytest.mark.usefixtures("undrawn")
@pytest.mark.runs
def test_requests_without_a_load_ask_for_the_flag(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A copy of AIPerf's requests without the summary beside it; with the flag it is imported."""
    path = _write(tmp_path, (PEERS / "aiperf-eagle3/profile_export.jsonl").read_text(), "rows.jsonl")
    arguments = ["import", str(path), "--results", str(tmp_path / "results")]
    assert exit_code(arguments) == Exit.BAD_INPUT
    assert "--concurrency" in capsys.readouterr().err
    assert exit_code([*arguments, "--concurrency", "4"]) == Exit.OK
