"""Parses the output of `nvidia-smi` into facts, from this machine or from an engine's pod. Pure."""

from __future__ import annotations

import re

from pydantic import JsonValue

from specbench_api.outcome.provenance import Fact, FactName

GPUS = ("nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader,nounits")
"""Command that prints name, memory in MiB and driver, one line per GPU: input of `gpu_facts`."""
TOPOLOGY = ("nvidia-smi", "topo", "-m")
"""Command that prints the matrix of links: input of `links_fact`."""
SUMMARY = ("nvidia-smi",)
"""Command that prints the overview, the only output with the driver's CUDA version: input of `cuda_fact`."""
OF_GPUS = (FactName.GPU, FactName.GPU_COUNT, FactName.GPU_MEMORY_BYTES, FactName.DRIVER)
"""The facts that `gpu_facts` returns."""
_MIB = 1 << 20
_CUDA = re.compile(r"CUDA Version: *([\d.]+)")
_STYLE = re.compile(r"\x1b\[[\d;]*m")
"""Terminal escape sequences: `nvidia-smi topo` underlines its header even without a terminal."""


def gpu_facts(rows: str, source: str) -> dict[FactName, Fact]:
    """Return the facts in OF_GPUS for all GPUs together. If the products differ, all are listed."""
    split = [[cell.strip() for cell in line.split(",")] for line in rows.splitlines()]
    cells = [row for row in split if len(row) == 3]  # skips warnings printed before the rows
    if not cells:
        return dict.fromkeys(OF_GPUS, Fact.unread(rows, source))
    products, memories, drivers = (list(dict.fromkeys(column)) for column in zip(*cells, strict=True))
    memory = int(memories[0]) * _MIB if len(memories) == 1 and memories[0].isdecimal() else None
    values: tuple[JsonValue, ...] = (" and ".join(products), len(cells), memory, " and ".join(drivers))
    unread = Fact.unknown(f"{source}: the GPUs differ in it, or do not report it")
    return {
        name: unread if value is None else Fact.observed(value, source)
        for name, value in zip(OF_GPUS, values, strict=True)
    }


def cuda_fact(summary: str, source: str) -> Fact:
    """Return the newest CUDA version that the driver supports."""
    found = _CUDA.search(summary)
    return Fact.observed(found[1], source) if found else Fact.unread(summary, source)


def links_fact(matrix: str, source: str) -> Fact:
    """Return the kinds of links between GPUs: `NV18`; several are listed; `none` for one GPU."""
    rows = [_STYLE.sub("", line).split() for line in matrix.splitlines()]
    head = next((row for row in rows if row and row[0] == "GPU0"), [])
    count = next((index for index, name in enumerate(head) if not name.startswith("GPU")), len(head))
    gpus = [row[1 : count + 1] for row in rows if row and row[0].startswith("GPU") and "X" in row]
    if not gpus:
        return Fact.unread(matrix, source)
    kinds = dict.fromkeys(kind for row in gpus for kind in row if kind != "X")
    return Fact.observed(", ".join(kinds) or "none", source)
