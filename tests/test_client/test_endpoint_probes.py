"""The loads of `measure --sweep`: doubled until the throughput stops growing or the goodput falls."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from unittest.mock import AsyncMock, Mock

import pytest

from specbench_api.outcome.layout import PLAN, run_root
from specbench_api.spec.engine import DialectName
from specbench_api.spec.slo import Slo
from specbench_client.cli import exit_code, measure_probing
from specbench_client.cli.measure import Measurement, measure
from specbench_client.cli.measure_probing import as_interrupted, with_detected, with_repeat_size, with_swept_loads
from specbench_client.documents.record import Record
from specbench_client.drive.endpoint_detection import DetectedEndpoint
from specbench_client.drive.load_probes import ProbedLoad, find_levels, probed_load
from specbench_client.store.folder import FolderStore
from specbench_client.store.points import PointStore
from specbench_testing.local_results import store_point
from specbench_testing.synthetic_records import SyntheticRun, point_of, record

Rates = Callable[[int], ProbedLoad]


def levels_of(*endpoints: Rates, most: int = 4096) -> tuple[list[int], list[str]]:
    said: list[str] = []

    async def probe(streams: int) -> list[ProbedLoad]:
        return [rates(streams) for rates in endpoints]

    return asyncio.run(find_levels(probe, most, said.append)), said


def saturating(at: int) -> Rates:
    return lambda streams: ProbedLoad(streams, 100.0 * min(streams, at))


GOODPUT = {1: 1.0, 2: 2.0, 4: 1.9, 8: 9.0}


@pytest.mark.parametrize(
    ("endpoints", "levels"),
    [
        ([saturating(8)], [1, 2, 4, 8, 16]),
        ([saturating(2), saturating(8)], [1, 2, 4, 8, 16]),
        ([lambda streams: ProbedLoad(streams, 100.0 * streams, GOODPUT[streams])], [1, 2, 4]),
        ([lambda streams: ProbedLoad(streams, 1 + streams / 26)], [1, 2]),
        ([lambda streams: ProbedLoad(streams, 1 + min(streams, 2) / 18)], [1, 2, 4]),
    ],
    ids=["without gain", "while any endpoint gains", "goodput falls", "gain below 5 %", "gain above 5 %"],
)
def test_sweep_ends_at_the_first_load_without_gain(endpoints: list[Rates], levels: list[int]) -> None:
    assert levels_of(*endpoints)[0] == levels


def test_sweep_reports_why_it_ends_and_has_no_load_above_the_number_of_requests() -> None:
    less = "less than 5% more throughput"
    assert levels_of(saturating(8))[1][-1] == f"sweep: concurrency 16 is no gain over 8 ({less}): measuring 1 to 16"
    both = levels_of(*(lambda streams, arm=arm: ProbedLoad(streams, 1, arm=arm) for arm in ("none", "b")))[1]
    assert "none: 1 tok/s; b: 1 tok/s" in both[0]
    assert f"(none: {less}; b: {less})" in both[-1]
    late = levels_of(lambda streams: ProbedLoad(streams, 100 * 1.27 ** math.log2(streams), GOODPUT[streams]))[1][-1]
    assert "+27% throughput, but fewer requests a second within the SLO" in late
    levels, said = levels_of(saturating(10**9), most=6)
    assert levels == [1, 2, 4]
    assert "not saturated: a load of" in said[-1]
    assert levels_of(saturating(10**9))[0][-1] == 4096


def answered(begin_s: float, end_s: float, first_s: float, tokens: int) -> Record:
    """An answer with these times after the probe's start."""
    times = {"intended_ns": begin_s, "first_token_ns": first_s, "last_token_ns": end_s}
    return record(output_tokens=tokens, **{name: int(seconds * 1e9) for name, seconds in times.items()})


def test_rates_are_over_the_time_until_the_first_stream_ends() -> None:
    quick = [answered(0, 1, 0.1, 10), answered(1, 2, 1.1, 10)]
    slow = [answered(0, 1.5, 0.9, 30), answered(1.5, 2.5, 2.4, 20)]  # half of its last answer is after 2 s
    load = probed_load([quick, slow], Slo(ttft_ms=500))
    assert load.tokens_per_s == pytest.approx((10 + 10 + 30 + 10) / 2)
    assert load.good_per_s == pytest.approx(2 / 2)
    assert probed_load([quick, slow], None) == ProbedLoad(2, load.tokens_per_s)


@pytest.mark.parametrize("flags", [("--concurrency", "4"), ("--rate", "2"), ("--arrival", "Constant")])
def test_sweep_takes_no_loads(flags: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    fixed = ("--endpoint", "http://127.0.0.1:1", "--model", "m", "--dataset", "gsm8k", "--requests", "4")
    assert exit_code(["measure", *fixed, "--sweep", *flags]) == 2
    assert f"--sweep chooses the loads itself: leave out {flags[0]}" in capsys.readouterr().err


URL = "http://127.0.0.1:1"


def sweep_of(folder: Path, *flags: str) -> Measurement:
    prompts, results = folder / "prompts.jsonl", folder / "results"
    prompts.write_text('{"prompt": "a"}\n{"prompt": "b"}\n')
    words = ("--endpoint", URL, "--dataset", f"jsonl:{prompts}", "--results", str(results), "--sweep", *flags)
    names = ("none", "endpoint") if "--baseline" in flags else ("endpoint",)
    endpoints = tuple({"name": name, "url": f"{URL}/{name}", "model": "m"} for name in names)
    return Measurement(measure.make_context("measure", list(words)).params, endpoints)


@pytest.mark.parametrize(
    ("flags", "chosen"),
    [
        (("--requests", "40"), {}),
        (("--baseline", URL, "--requests-per-stream", "5"), {}),
        (("--baseline", URL), {"requests_per_stream": 4}),
        (("--baseline", URL), {"requests_per_stream": 192}),
    ],
)
def test_an_interrupted_sweep_continues_with_the_loads_that_it_found(
    flags: tuple[str, ...], chosen: dict[str, int], tmp_path: Path
) -> None:
    """Its servers are not asked again: two sweeps may end at different loads. Other loads are of another command."""
    wanted = sweep_of(tmp_path, *flags)
    assert as_interrupted(wanted) is None
    for uid, concurrency in (("u1", [1, 2, 4]), ("u2", [1, 3])):
        plan = wanted.with_options(concurrency=concurrency, **chosen).plan.model_copy(update={"uid": uid})
        store = FolderStore(tmp_path / "results" / run_root(plan.namespace, plan.name, uid))
        store.put(PLAN, plan.to_json().encode())
        summary, frame = point_of(SyntheticRun(), SyntheticRun().plan.points[0])
        place = {name: getattr(plan.points[0], name) for name in ("hash", "arm", "workload", "level", "repeat")}
        store_point(PointStore(store), summary.model_copy(update=place), frame)
    begun = as_interrupted(wanted)
    assert begun is not None
    assert begun.options == {**wanted.options, "concurrency": [1, 2, 4], **chosen}
    assert as_interrupted(wanted.with_options(new=True)) is None
    assert as_interrupted(wanted.with_options(max_tokens=7)) is None


@pytest.mark.parametrize(
    ("flags", "most"),
    [((), 2), (("--requests", "40"), 40), (("--requests-per-stream", "5"), 4096), (("--duration", "5"), 4096)],
)
def test_a_sweep_has_no_more_streams_than_requests(
    flags: tuple[str, ...], most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def find(_: object, limit: int, __: object) -> list[int]:
        return [limit]

    monkeypatch.setattr(measure_probing, "find_levels", find)
    assert with_swept_loads(sweep_of(tmp_path, *flags), {}).options["concurrency"] == [most]


@pytest.mark.parametrize(
    ("loads", "limit", "warned"),
    [([1, 2], 1, True), ([1, 2], 2, False), ([1, 2], None, False), ([8, 1], 4, True), (None, 1, False)],
)
def test_a_load_above_the_limit_of_a_server_is_a_warning(  # noqa: PLR0917 -- the columns of the table
    loads: list[int] | None,
    limit: int | None,
    warned: bool,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A sweep chooses its loads later, and goes beyond every limit."""
    found = DetectedEndpoint(DialectName.LLAMA_CPP, "m", "llama.cpp", None, False, None, URL, most_at_once=limit)
    monkeypatch.setattr(measure_probing, "detect_endpoint", AsyncMock(return_value=found))
    with_detected(sweep_of(tmp_path).with_options(concurrency=loads), {})
    text = capsys.readouterr().err
    assert text.startswith("detected: llama.cpp")
    assert ("warning" in text, "-np" in text, "--concurrency" in text) == (warned, warned, warned)


@pytest.mark.parametrize(
    ("flags", "load_s"),
    [
        ((), 6 * 8 * 31),  # repeats, requests, seconds of the shortest on each server
        (("--repeats", "10"), 10 * 8 * 31),
        (("--until-sure",), 6 * 8 * 31),
        (("--rate", "1"), 6 * 2 * 96),  # repeats, servers, seconds of arrivals
        (("--requests-per-stream", "5"), 6 * 5 * 31),
        (("--duration", "30"), 6 * 2 * 30),
        (("--restart-command", "true"), 6 * 8 * 31),
    ],
)
def test_the_forecast_is_the_least_that_both_servers_need_at_each_load(
    flags: tuple[str, ...],
    load_s: int,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def probe(*_: object) -> list[list[float]]:
        return [[23.0, 21.0], [12.0, 10.0]]

    monkeypatch.setattr(measure_probing, "probe_requests_s", probe)
    loads = () if "--rate" in flags else ("-c", "1,8")
    (tmp_path / "results").mkdir()
    sized = with_repeat_size(sweep_of(tmp_path, "--baseline", URL, *loads, *flags), {})
    given = {"--requests-per-stream": (5, None), "--duration": (None, 30), "--rate": (None, 96)}
    size = given.get(flags[0] if flags else "", (8, None))
    assert (sized.plan.load.requests_per_stream, sized.plan.load.duration_seconds) == size
    text = capsys.readouterr().err
    assert f"each repeat has {next(filter(None, size))} " in text
    whole_s = load_s * len(sized.plan.load.levels)
    at_each = f", {timedelta(seconds=load_s)} at each load" if loads else ""
    assert f" {timedelta(seconds=whole_s)}{at_each}, and longer" in text
    assert ("besides the restarts" in text) == bool(sized.plan.restarts) == ("--restart-command" in flags)
    assert (f"only concurrency 1: {timedelta(seconds=load_s)}" in text) == bool(loads)


def test_an_interruption_before_the_first_point_names_how_to_go_on(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measure_probing, "choose_what_is_open", Mock(side_effect=KeyboardInterrupt))
    assert exit_code(["measure", "--endpoint", URL, "--model", "m", "-c", "1"]) == 130
    assert "run the same command again" in capsys.readouterr().err
