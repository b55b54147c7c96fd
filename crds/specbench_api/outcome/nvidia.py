"""What `nvidia-smi` says, in facts: the same on this machine and in an engine's pod. Pure."""

from __future__ import annotations

import re

from pydantic import JsonValue

from specbench_api.outcome.facts import FactName
from specbench_api.outcome.launched import Fact

GPUS = ("nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader,nounits")
"""Names, MiB and drivers, one line a GPU: what `gpu_facts` reads."""
TOPOLOGY = ("nvidia-smi", "topo", "-m")
"""The matrix of links: what `links_fact` reads."""
SUMMARY = ("nvidia-smi",)
"""The table for people, whose head alone tells the driver's CUDA: what `cuda_fact` reads."""
OF_GPUS = (FactName.GPU, FactName.GPU_COUNT, FactName.GPU_MEMORY_BYTES, FactName.DRIVER)
_MIB = 1 << 20
_CUDA = re.compile(r"CUDA Version: *([\d.]+)")
_STYLE = re.compile(r"\x1b\[[\d;]*m")
"""The topology underlines its head, also where no terminal is."""
_QUOTED = 200


def gpu_facts(rows: str, source: str) -> dict[FactName, Fact]:
    """OF_GPUS, of all GPUs together: where they are not of one kind, each kind is named, and no one memory is."""
    split = [[cell.strip() for cell in line.split(",")] for line in rows.splitlines()]
    cells = [row for row in split if len(row) == 3]  # a warning may stand before them
    if not cells:
        return dict.fromkeys(OF_GPUS, _unread(rows, source))
    products, memories, drivers = (list(dict.fromkeys(column)) for column in zip(*cells, strict=True))
    memory = int(memories[0]) * _MIB if len(memories) == 1 and memories[0].isdecimal() else None
    values: tuple[JsonValue, ...] = (" and ".join(products), len(cells), memory, " and ".join(drivers))
    unread = Fact.unseen(f"{source}: its GPUs differ in it, or do not tell it")
    return {
        name: unread if value is None else Fact.seen(value, source) for name, value in zip(OF_GPUS, values, strict=True)
    }


def cuda_fact(summary: str, source: str) -> Fact:
    """The newest CUDA that the driver can do."""
    found = _CUDA.search(summary)
    return Fact.seen(found[1], source) if found else _unread(summary, source)


def links_fact(matrix: str, source: str) -> Fact:
    """The links between GPUs: `NV18`; each kind where there are several; `none` of one GPU."""
    rows = [_STYLE.sub("", line).split() for line in matrix.splitlines()]
    head = next((row for row in rows if row and row[0] == "GPU0"), [])
    count = next((place for place, name in enumerate(head) if not name.startswith("GPU")), len(head))
    gpus = [row[1 : count + 1] for row in rows if row and row[0].startswith("GPU") and "X" in row]
    if not gpus:
        return _unread(matrix, source)
    kinds = dict.fromkeys(kind for row in gpus for kind in row if kind != "X")
    return Fact.seen(", ".join(kinds) or "none", source)


def _unread(text: str, source: str) -> Fact:
    """In its own words, if it had any."""
    return Fact.unseen(f"{source} tells none: {' '.join(text.split())[:_QUOTED] or 'it said nothing'}")
