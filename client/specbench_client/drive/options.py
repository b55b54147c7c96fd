"""Options of measuring a group, besides plan and store; tests replace any of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from specbench_api.outcome.provenance import HostFacts
from specbench_client.drive.progress import Progress
from specbench_client.store.retrying import STORE_PATIENCE_S


def _now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True)
class SystemClock:
    """The monotonic clock for measuring and the wall clock for metadata."""

    monotonic_ns: Callable[[], int] = time.monotonic_ns
    wall: Callable[[], datetime] = _now

    def wall_text(self) -> str:
        """Return the wall clock's time in RFC 3339."""
        return self.wall().isoformat(timespec="milliseconds").replace("+00:00", "Z")


@dataclass(frozen=True)
class ClientOptions:
    """What the user chose for all groups; handed whole from the command line to each group."""

    keep_text: bool = False
    """Store the texts of answers in the records."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Sent with every request and not stored, such as an API key."""
    workers: int | None = None
    """Number of worker processes; None: as many as a load needs, at most one per core."""
    restart_command: str | None = None
    """Shell command that restarts a running server before each group, if the plan `restarts` them."""


@dataclass(frozen=True)
class DriveOptions:
    """Options of measuring a group.

    `attempt` is part of the names of files and must be new for each client process. What is before its last dash, if it
    has one, names the launch of the engine.
    """

    attempt: str
    base_dir: Path = field(default_factory=Path)
    """Folder of relative paths of prompts."""
    on_progress: Callable[[Progress], None] | None = None
    """Called every `show_every_s` from the event loop, and once more at a successful end."""
    show_every_s: float = 1.0
    patience_s: float = STORE_PATIENCE_S
    """How long to retry an operation while the store is unavailable."""
    healthy_within_s: float = 60.0
    """How long the engine may take to answer its health route; engines are ready before a group is measured."""
    client: ClientOptions = field(default_factory=ClientOptions)
    place: HostFacts = field(default_factory=HostFacts)
    """Facts of the machine of the engine, from whoever started it."""
    warm_up: bool = True
    """Whether to warm up before the first point, if the load has a warm-up; not needed for a server in use."""
    clock: SystemClock = field(default_factory=SystemClock)
