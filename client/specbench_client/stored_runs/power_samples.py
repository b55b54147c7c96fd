"""Reads power samples: CSV of nvidia-smi, any CSV of times and watts, or the answer of a Prometheus range query.

The samples are stored with the run's results in one form, and read again whenever its summary is recomputed.
"""

from __future__ import annotations

import csv
import io
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from specbench_api.outcome.layout import POWER
from specbench_api.outcome.manifest import Manifest
from specbench_client.analysis.estimates.energy import PowerSamples, PowerTrace
from specbench_client.bounded_json import parse_json
from specbench_client.errors import BadInput, NotDurable
from specbench_client.store.store import Store, StoreErrorReason

TIME_COLUMNS = ("time", "timestamp")
WATTS_COLUMNS = ("watts", "power.draw [W]", "power.draw.average [W]", "power.draw.instant [W]", "power.draw")
DEVICE_COLUMNS = ("device", "gpu", "uuid", "index", "pci.bus_id")
ONLY_DEVICE = "0"
"""The device of samples that contain none."""
_NVIDIA = "%Y/%m/%d %H:%M:%S.%f"
DevicePower = Mapping[str, PowerSamples]


def read_power(file: Path) -> DevicePower:
    """Return samples by device. Times without a zone are UTC. Raises BadInput with the line and a remedy."""
    try:
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"--power {file}: cannot be read: {error}") from error
    return _devices(
        _parse_prometheus(text, file) if text.lstrip().startswith("{") else _parse_csv(text, file), str(file)
    )


def read_stored_power(store: Store) -> DevicePower | None:
    """Return the samples stored with the run, or None. Raises NotDurable if they are damaged."""
    data = store.get(POWER)
    if data is None:
        return None
    try:
        return _devices(_parse_csv(data.decode(), Path(POWER)), POWER)
    except (BadInput, UnicodeDecodeError) as error:
        raise NotDurable(f"{store.uri(POWER)}: {error}: give the samples again", StoreErrorReason.DAMAGED) from error


def power_csv(devices: DevicePower) -> str:
    """Return the samples as CSV, the form in which they are stored."""
    sink = io.StringIO()
    writer = csv.writer(sink, lineterminator="\n")
    writer.writerow(["time", "device", "watts"])
    for name, samples in devices.items():
        writer.writerows(
            (f"{at:.3f}", name, f"{watts:g}") for at, watts in zip(samples.at_s, samples.watts, strict=True)
        )
    return sink.getvalue()


def power_per_point(devices: DevicePower, manifests: Mapping[str, Manifest]) -> PowerTrace:
    """Return the samples with the start times of the points that they are integrated over."""
    return PowerTrace(devices, {name: _seconds(each.started_wall) for name, each in manifests.items()})


PowerSample = tuple[str, float, float]
"""Device, seconds since 1970, watts."""


def _devices(samples: Iterator[PowerSample], where: str) -> DevicePower:
    """Group samples by device, in order of time; of two at one time the later line counts.

    Raises BadInput if there are none.
    """
    watts_by_device = defaultdict[str, dict[float, float]](dict)
    for device, at_s, watts in samples:
        watts_by_device[device][at_s] = watts
    if not watts_by_device:
        raise BadInput(
            f"{where}: contains no power samples: give one per line, with {TIME_COLUMNS[0]} and {WATTS_COLUMNS[0]}"
        )
    return {device: _sorted(each) for device, each in sorted(watts_by_device.items())}


def _sorted(watts: Mapping[float, float]) -> PowerSamples:
    at_s = sorted(watts)
    return PowerSamples(np.array(at_s, dtype=np.float64), np.array([watts[each] for each in at_s], dtype=np.float64))


def _parse_csv(text: str, file: Path) -> Iterator[PowerSample]:
    """Yield the samples of a CSV file, without missing values ([N/A])."""
    rows = csv.reader(io.StringIO(text), skipinitialspace=True)
    head = [name.strip() for name in next(rows, [])]
    time, watts = _column(head, TIME_COLUMNS, file), _column(head, WATTS_COLUMNS, file)
    device = next((head.index(name) for name in DEVICE_COLUMNS if name in head), None)
    if device is None and head[watts] != WATTS_COLUMNS[0]:
        raise BadInput(
            f"{file}, line 1: has no device column, but nvidia-smi writes a line per device: add uuid to --query-gpu"
        )
    unnamed: dict[float, float] = {}
    for number, row in enumerate(rows, start=2):
        if not row:
            continue
        where = f"{file}, line {number}"
        if len(row) != len(head):
            raise BadInput(f"{where}: has {len(row)} columns, but the first line has {len(head)}: correct the line")
        text_of_watts = row[watts].removesuffix("W").strip()
        if text_of_watts.startswith("["):
            continue
        at_s, drawn = _time(row[time], where), _watts(text_of_watts, where)
        if device is None and unnamed.setdefault(at_s, drawn) != drawn:
            what = f"{drawn:g} W at a time that has {unnamed[at_s]:g} W already"
            raise BadInput(f"{where}: {what}: name the devices in a column {DEVICE_COLUMNS[0]}, or {DEVICE_COLUMNS[1]}")
        yield (ONLY_DEVICE if device is None else row[device].strip()), at_s, drawn


def _column(head: Sequence[str], names: Sequence[str], file: Path) -> int:
    for name in names:
        if name in head:
            return head.index(name)
    raise BadInput(f"{file}, line 1: has no column {' or '.join(names)}, it has {', '.join(head) or 'none'}: add one")


def _parse_prometheus(text: str, file: Path) -> Iterator[PowerSample]:
    """Yield the samples of a range query's answer, in which each series is a device."""
    try:
        answer: Any = parse_json(text)["data"]
        series = [(_device(each["metric"]), each["values"]) for each in answer["result"]]
    except (ValueError, KeyError, TypeError) as error:
        expected = "{data: {result: [{metric, values: [[time, watts], …]}]}}"
        raise BadInput(f"{file}: is not the answer of a Prometheus range query: expected {expected}") from error
    for device, values in series:
        for number, pair in enumerate(values):
            where = f"{file}, {device}, value {number}"
            if not isinstance(pair, list) or len(pair) != 2:
                raise BadInput(f"{where}: is not a pair of time and watts: give [time, watts]")
            yield device, _time(str(pair[0]), where), _watts(str(pair[1]), where)


def _device(labels: Mapping[str, str]) -> str:
    """Return the name of a series, made of all its labels, so that two series are never one device."""
    return ", ".join(f"{name}={labels[name]}" for name in sorted(labels) if name != "__name__") or ONLY_DEVICE


def _watts(text: str, where: str) -> float:
    try:
        watts = float(text)
    except ValueError as error:
        raise BadInput(f"{where}: {text!r} is not a number of watts: give one, such as 312.5") from error
    if not math.isfinite(watts) or watts < 0:
        raise BadInput(f"{where}: {text} W is not a valid power: give a finite number of at least 0")
    return watts


def _time(text: str, where: str) -> float:
    try:
        return _seconds(text.strip())
    except ValueError as error:
        raise BadInput(
            f"{where}: {text!r} is not a time: give seconds since 1970, or 2026-11-22T14:36:17.5Z"
        ) from error


def _seconds(text: str) -> float:
    """Return seconds since 1970. Raises ValueError."""
    try:
        number = float(text)
    except ValueError:
        time = datetime.strptime(text, _NVIDIA).replace(tzinfo=UTC) if "/" in text else datetime.fromisoformat(text)
        return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()
    if not math.isfinite(number):
        raise ValueError(text)
    return number
