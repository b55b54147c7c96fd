"""Joules per token from power samples: the integral, incomplete samples, and every input format."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specbench_api.outcome.layout import MANIFEST, POWER
from specbench_api.outcome.manifest import Manifest
from specbench_api.outcome.summary import Cell, RunSummary
from specbench_api.outcome.termination import Exit
from specbench_client.analysis.estimates.energy import JOULES, WATTS, PowerSamples, integrate_joules
from specbench_client.cli import exit_code
from specbench_client.errors import BadInput
from specbench_client.stored_runs.power_samples import power_csv, read_power
from specbench_testing.local_results import store_results
from specbench_testing.synthetic_records import SyntheticRun

UID = "0190a000-0000-7000-8000-000000000000"
NVIDIA = """timestamp, uuid, power.draw [W]
2026/11/22 14:36:17.500, GPU-a, 300.25 W
2026/11/22 14:36:17.510, GPU-b, [N/A]
2026/11/22 14:36:18.500, GPU-a, 310.00 W
2026/11/22 14:36:18.510, GPU-b, 90.00 W
"""
AT_S = datetime(2026, 11, 22, 14, 36, 17, 500000, UTC).timestamp()


def samples(at_s: list[float], watts: list[float]) -> PowerSamples:
    return PowerSamples(np.array(at_s, dtype=np.float64), np.array(watts, dtype=np.float64))


@given(
    start_s=st.floats(0, 5), length_s=st.floats(0.1, 5), level=st.floats(0, 1000), slope=st.floats(0, 50),
    every_s=st.floats(0.05, 1.9),
)  # fmt: skip
def test_linearly_rising_power_has_the_energy_of_its_mean(
    start_s: float, length_s: float, level: float, slope: float, every_s: float
) -> None:
    at_s = np.arange(-2.0, 14.0, every_s)
    found = integrate_joules(PowerSamples(at_s, level + slope * (at_s + 2)), start_s, start_s + length_s)
    assert found == pytest.approx((level + slope * (start_s + length_s / 2 + 2)) * length_s, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize(
    ("at_s", "window", "reason"),
    [
        ([1.0, 2.0, 3.0], (0.5, 2.5), "samples cover 1.0 to 3.0 s, but the steady window is 0.5 to 2.5 s"),
        ([1.0, 2.0, 3.0], (1.5, 3.5), "samples cover 1.0 to 3.0 s, but the steady window is 1.5 to 3.5 s"),
        ([0.0, 1.0, 5.0, 6.0], (0.5, 5.5), "4.0 s between two samples, but at most 2.0 s are accepted"),
        ([0.0, 10.0, 20.0, 100.0], (11.0, 90.0), "80.0 s between two samples, but at most 7.9 s are accepted"),
    ],
)
def test_samples_that_do_not_cover_the_window_give_a_reason(
    at_s: list[float], window: tuple[float, float], reason: str
) -> None:
    assert reason in str(integrate_joules(samples(at_s, [100.0] * len(at_s)), *window))


def test_gaps_outside_the_window_or_up_to_a_tenth_of_it_are_accepted() -> None:
    assert integrate_joules(samples([0.0, 50.0, 51.0, 52.0], [10.0] * 4), 50.0, 52.0) == 20.0
    assert integrate_joules(samples([*np.arange(0.0, 201.0, 15.0), 201.0], [10.0] * 15), 0.0, 200.0) == pytest.approx(
        2000.0
    )


def write_power(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "power"
    file.write_text(text)
    return file


def test_nvidia_smi_output_is_read_without_missing_values(tmp_path: Path) -> None:
    found = read_power(write_power(tmp_path, NVIDIA))
    assert {name: each.watts.tolist() for name, each in found.items()} == {"GPU-a": [300.25, 310.0], "GPU-b": [90.0]}
    assert found["GPU-a"].at_s.tolist() == [AT_S, AT_S + 1]


def test_prometheus_response_gives_one_series_per_device(tmp_path: Path) -> None:
    series = [
        {"metric": {"__name__": "DCGM_FI_DEV_POWER_USAGE", "gpu": gpu}, "values": [[AT_S + 1, "71.5"], [AT_S, "70"]]}
        for gpu in ("0", "1")
    ]
    found = read_power(write_power(tmp_path, json.dumps({"status": "success", "data": {"result": series}})))
    assert {name: (each.at_s.tolist(), each.watts.tolist()) for name, each in found.items()} == {
        f"gpu={gpu}": ([AT_S, AT_S + 1], [70.0, 71.5]) for gpu in ("0", "1")
    }


@pytest.mark.parametrize("time", ["1795358177.5", "2026-11-22T14:36:17.5Z", "2026-11-22T15:36:17.500+01:00"])
def test_all_time_formats_are_equivalent(tmp_path: Path, time: str) -> None:
    (found,) = read_power(write_power(tmp_path, f"time,watts\n{time},70\n")).values()
    assert found.at_s.tolist() == [AT_S]


def test_stored_samples_are_read_back(tmp_path: Path) -> None:
    found = read_power(write_power(tmp_path, NVIDIA))
    again = read_power(write_power(tmp_path, power_csv(found)))
    assert {name: each.watts.tolist() for name, each in again.items()} == {"GPU-a": [300.25, 310.0], "GPU-b": [90.0]}
    assert again["GPU-a"].at_s.tolist() == [AT_S, AT_S + 1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1: has no column time or timestamp, it has none: add one"),
        ("time,load\n1,2\n", "line 1: has no column watts or power.draw [W]"),
        ("time,watts\n", "contains no power samples"),
        ("time,watts\n1,x\n", "line 2: 'x' is not a number of watts"),
        ("time,watts\n1,-3\n", "line 2: -3 W is not a valid power"),
        ("time,watts\n1,nan\n", "line 2: nan W is not a valid power"),
        ("time,watts\nnoon,3\n", "line 2: 'noon' is not a time: give seconds since 1970"),
        ("time,watts\n1,300\n1,90\n", "line 3: 90 W at a time that has 300 W already: name the devices in a column"),
        (
            "timestamp, power.draw [W]\n",
            "line 1: has no device column, but nvidia-smi writes a line per device: add uuid",
        ),
        ("time,watts\n1,3,4\n", "line 2: has 3 columns, but the first line has 2"),
        ('{"data": {}}', "is not the answer of a Prometheus range query"),
        ('{"data": {"result": [{"metric": {}, "values": [1]}]}}', "value 0: is not a pair of time and watts"),
    ],
)
def test_invalid_power_file_is_rejected_with_its_location(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(BadInput) as caught:
        read_power(write_power(tmp_path, text))
    assert message in str(caught.value)


def bounds_s(folder: Path) -> tuple[float, float]:
    """Return wall-clock bounds that contain every point."""
    manifests = [Manifest.from_json(file.read_text()) for file in folder.rglob(MANIFEST)]
    starts = [datetime.fromisoformat(each.started_wall).timestamp() for each in manifests]
    return min(starts) - 5, max(starts) + 3600


def report_summary(folder: Path, capsys: pytest.CaptureFixture[str], *more: str) -> tuple[RunSummary, str]:
    assert exit_code(["report", str(folder), "--output", "json", *more]) == Exit.OK
    captured = capsys.readouterr()
    return RunSummary.from_json(captured.out), captured.err


def captured(cell: Cell) -> tuple[float | None, float | None]:
    return cell.figures[JOULES].value, cell.figures[WATTS].value


@pytest.mark.process
def test_report_has_energy_figures_or_the_reason_for_their_absence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, file = tmp_path / "out", tmp_path / "power.csv"
    store_results(SyntheticRun(prompts=12, repeats=3, drafters=("ngram",)), folder, UID)
    assert JOULES not in report_summary(folder, capsys)[0].cells[0].figures
    first_s, last_s = bounds_s(folder)
    lines = [
        f"{at_s:.3f},{gpu},{watts}" for at_s in np.arange(first_s, last_s, 1.0) for gpu, watts in ((0, 300), (1, 50))
    ]
    file.write_text("\n".join(["time,device,watts", *lines]))
    summary, warning = report_summary(folder, capsys, "--power", str(file))
    assert warning == ""
    for cell in summary.cells:
        tps = cell.figures["output_tps"].value
        assert tps is not None
        assert captured(cell) == pytest.approx((350 / tps, 350.0))
    assert not list(folder.rglob(POWER))
    assert JOULES not in report_summary(folder, capsys)[0].cells[0].figures
    report_summary(folder, capsys, "--recompute", "--power", str(file))
    assert len(list(folder.rglob(POWER))) == 1
    assert captured(report_summary(folder, capsys, "--recompute")[0].cells[1]) == captured(summary.cells[1])
    assert exit_code(["report", str(folder), "--output", "markdown"]) == Exit.OK
    assert "| J/token |" in capsys.readouterr().out
    file.write_text("\n".join(["time,device,watts", *lines[: len(lines) // 1000]]))
    short, warning = report_summary(folder, capsys, "--power", str(file))
    assert captured(short.cells[1]) == (None, None)
    assert "no energy: " in warning
    assert "samples cover" in warning
