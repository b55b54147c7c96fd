"""Power samples from a file: nvidia-smi's CSV, any CSV of times and watts, or what Prometheus answers to a range query.

They are kept beside the run's results in one form, and read again whenever its answer is made anew.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from specbench_api.outcome.layout import POWER
from specbench_api.outcome.manifest import Manifest
from specbench_client.analysis.estimates.energy import Power, Samples
from specbench_client.errors import BadInput, NotDurable
from specbench_client.store.store import Refusal, Store

TIMES = ("time", "timestamp")
WATTS = ("watts", "power.draw [W]", "power.draw.average [W]", "power.draw.instant [W]", "power.draw")
DEVICES = ("device", "gpu", "uuid", "index", "pci.bus_id")
ONLY = "0"
"""The device of samples that name none."""
_NVIDIA = "%Y/%m/%d %H:%M:%S.%f"
Devices = Mapping[str, Samples]


def read_power(file: Path) -> Devices:
    """Samples by device. Times without a zone are taken as UTC. Raises BadInput: where, what, what instead."""
    try:
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"--power {file}: cannot be read: {error}") from error
    return _devices(_exported(text, file) if text.lstrip().startswith("{") else _listed(text, file), str(file))


def kept_power(store: Store) -> Devices | None:
    """Those that are kept beside the run; None where none are. Raises NotDurable where they are damaged."""
    data = store.get(POWER)
    if data is None:
        return None
    try:
        return _devices(_listed(data.decode(), Path(POWER)), POWER)
    except (BadInput, UnicodeDecodeError) as error:
        raise NotDurable(f"{store.uri(POWER)}: {error}: give the samples again", Refusal.DAMAGED) from error


def power_text(devices: Devices) -> str:
    """The one form in which they are kept."""
    sink = io.StringIO()
    writer = csv.writer(sink, lineterminator="\n")
    writer.writerow(["time", "device", "watts"])
    for name, samples in devices.items():
        writer.writerows(
            (f"{at:.3f}", name, f"{watts:g}") for at, watts in zip(samples.at_s, samples.watts, strict=True)
        )
    return sink.getvalue()


def power_of(devices: Devices, manifests: Mapping[str, Manifest]) -> Power:
    """Samples beside the points that they are integrated over."""
    return Power(devices, {name: _seconds(each.started_wall) for name, each in manifests.items()})


Sample = tuple[str, float, float]
"""Device, seconds since 1970, watts."""


def _devices(samples: Iterator[Sample], where: str) -> Devices:
    """By device, in the order of time; of two at one time the later line. Raises BadInput where there are none."""
    found = defaultdict[str, dict[float, float]](dict)
    for device, at_s, watts in samples:
        found[device][at_s] = watts
    if not found:
        raise BadInput(f"{where}: holds no power sample: a line each, with {TIMES[0]} and {WATTS[0]}")
    return {device: _sorted(each) for device, each in sorted(found.items())}


def _sorted(told: Mapping[float, float]) -> Samples:
    at_s = sorted(told)
    return Samples(np.array(at_s, dtype=np.float64), np.array([told[each] for each in at_s], dtype=np.float64))


def _listed(text: str, file: Path) -> Iterator[Sample]:
    """The rows of a CSV; what a device does not tell ([N/A]) is left out."""
    rows = csv.reader(io.StringIO(text), skipinitialspace=True)
    head = [name.strip() for name in next(rows, [])]
    time, watts = _column(head, TIMES, file), _column(head, WATTS, file)
    device = next((head.index(name) for name in DEVICES if name in head), None)
    if device is None and head[watts] != WATTS[0]:
        raise BadInput(f"{file}, line 1: names no device, and nvidia-smi has a line of each: add uuid to --query-gpu")
    unnamed: dict[float, float] = {}
    for number, row in enumerate(rows, start=2):
        if not row:
            continue
        where = f"{file}, line {number}"
        if len(row) != len(head):
            raise BadInput(f"{where}: {len(row)} columns, and the first line names {len(head)}")
        told = row[watts].removesuffix("W").strip()
        if told.startswith("["):
            continue
        at_s, drawn = _time(row[time], where), _watts(told, where)
        if device is None and unnamed.setdefault(at_s, drawn) != drawn:
            what = f"{drawn:g} W at a time that has {unnamed[at_s]:g} W already"
            raise BadInput(f"{where}: {what}: name the devices in a column {DEVICES[0]}, or {DEVICES[1]}")
        yield (ONLY if device is None else row[device].strip()), at_s, drawn


def _column(head: Sequence[str], names: Sequence[str], file: Path) -> int:
    for name in names:
        if name in head:
            return head.index(name)
    raise BadInput(f"{file}, line 1: names no column {', or '.join(names)}: it has {', '.join(head) or 'none'}")


def _exported(text: str, file: Path) -> Iterator[Sample]:
    """The series of a range query, each a device."""
    try:
        found: Any = json.loads(text)["data"]
        series = [(_device(each["metric"]), each["values"]) for each in found["result"]]
    except (ValueError, KeyError, TypeError) as error:
        wanted = "{data: {result: [{metric, values: [[time, watts], …]}]}}"
        raise BadInput(f"{file}: is no answer of Prometheus to a range query: {wanted}") from error
    for device, values in series:
        for number, pair in enumerate(values):
            where = f"{file}, {device}, value {number}"
            if not isinstance(pair, list) or len(pair) != 2:
                raise BadInput(f"{where}: is no pair of time and watts")
            yield device, _time(str(pair[0]), where), _watts(str(pair[1]), where)


def _device(labels: Mapping[str, str]) -> str:
    """By all of its labels: two series are never one device."""
    return ", ".join(f"{name}={labels[name]}" for name in sorted(labels) if name != "__name__") or ONLY


def _watts(text: str, where: str) -> float:
    try:
        watts = float(text)
    except ValueError as error:
        raise BadInput(f"{where}: {text!r} is no number of watts") from error
    if not math.isfinite(watts) or watts < 0:
        raise BadInput(f"{where}: {text} W is no power that a device draws")
    return watts


def _time(text: str, where: str) -> float:
    try:
        return _seconds(text.strip())
    except ValueError as error:
        raise BadInput(f"{where}: {text!r} is no time: give seconds since 1970, or 2026-11-22T14:36:17.5Z") from error


def _seconds(text: str) -> float:
    """Since 1970. Raises ValueError."""
    try:
        number = float(text)
    except ValueError:
        told = datetime.strptime(text, _NVIDIA).replace(tzinfo=UTC) if "/" in text else datetime.fromisoformat(text)
        return (told if told.tzinfo else told.replace(tzinfo=UTC)).timestamp()
    if not math.isfinite(number):
        raise ValueError(text)
    return number
