"""Everything that driving a group takes besides plan and store; all of it can be put in by a test."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from specbench_api.outcome.launched import Whereabouts
from specbench_client.drive.progress import Progress
from specbench_client.store.locate import read_object
from specbench_client.store.parts import PartLimits
from specbench_client.workload.prompts import Fetch


def _now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True)
class Clock:
    """Monotonic for measuring, wall for metadata."""

    monotonic_ns: Callable[[], int] = time.monotonic_ns
    wall: Callable[[], datetime] = _now

    def wall_text(self) -> str:
        """The wall clock in RFC 3339."""
        return self.wall().isoformat(timespec="milliseconds").replace("+00:00", "Z")


@dataclass(frozen=True)
class DriveOptions:
    """How a group is driven. `attempt` goes into the names of parts and must be new each time a client is started."""

    attempt: str
    spool: Path
    """Parts wait here until they are stored; a folder on this machine's disk."""
    base_dir: Path = field(default_factory=Path)
    """Where relative paths of prompts begin."""
    on_progress: Callable[[Progress], None] | None = None
    """Called every `show_every_s` from the event loop, and once more at a good end."""
    show_every_s: float = 1.0
    keep_text: bool = False
    """Keep the answers' texts in the records."""
    patience_s: float = 600.0
    """How long a store that is away is waited for, each time."""
    healthy_within_s: float = 60.0
    """How long the engine may take to answer its health route; it is ready already when a group is driven."""
    limits: PartLimits = field(default_factory=PartLimits)
    headers: Mapping[str, str] = field(default_factory=dict)
    """Sent with every measured request and kept nowhere."""
    workers: int | None = None
    """Processes that drive the load; None: as many as a load needs, one a core at most."""
    place: Whereabouts = field(default_factory=Whereabouts)
    """Where the engine runs, as whoever started it saw it."""
    clock: Clock = field(default_factory=Clock)
    fetch: Fetch = read_object
    """Gets prompts from s3://."""
