"""The interface of a benchmarked client: its command, and the request times that it reports."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from client_bench.cases import Case

CACHE = Path(os.environ.get("SPECBENCH_BENCHMARKS_CACHE") or Path.home() / ".cache/specbench/benchmarks")
"""The folder of the other clients' environments, separate from the project's."""


@dataclass(frozen=True)
class BenchmarkJob:
    """One run of one client. `folder` belongs to this run and contains its results.

    `monotonic_less_wall_ns`: monotonic minus wall clock during the run; set after its end.
    """

    url: str
    case: Case
    folder: Path
    monotonic_less_wall_ns: int = 0

    def prompts(self) -> list[str]:
        """Return one distinct prompt per request, all of the same length."""
        text = "Tell me about number {:06d} and what follows from it, please, in a few words."
        return [text.format(number) for number in range(self.case.requests)]


@dataclass(frozen=True)
class Command:
    """The command that starts a client."""

    argv: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ObservedRequest:
    """One request as its client reports it; matched by `number` (in its text) or by `request_id`.

    `chunk_ns`: the arrival of each content chunk: monotonic time if `absolute`, otherwise since the first chunk. None
    if the client does not record it.
    """

    number: int | None
    request_id: str | None
    ttft_ns: int
    chunk_ns: Sequence[int] | None = None
    absolute: bool = False


class Client(Protocol):
    """A benchmarked client."""

    @property
    def name(self) -> str:
        """The name shown in the table."""
        ...

    def version(self) -> str | None:
        """The installed version; None if not installed."""
        ...

    def command(self, job: BenchmarkJob) -> Command:
        """Write the client's input files into the job's folder and return its command."""
        ...

    def read(self, job: BenchmarkJob) -> list[ObservedRequest]:
        """Return the answered requests."""
        ...


def number_in(text: str) -> int:
    """Return the number with which the server starts the text of an answer."""
    return int(text[:16])
