"""How many points are stored, for the last words: as progress tells it, and by the store's own word where it answers.

Progress lags behind a commit, and knows nothing of a point that another client committed. So the store is asked once
more at the end, but never waited for: it may be what the program ends of.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from queue import Empty, SimpleQueue

from specbench_client.drive.progress import Progress
from specbench_client.errors import NotDurable
from specbench_client.job.last_words import LastWords
from specbench_client.store.point import PointStore
from specbench_client.store.store import Store

COUNT_WITHIN_S = 3.0


class Account:
    """Keeps `measured` of the last words. Nothing is known before `follow`."""

    def __init__(self, words: LastWords) -> None:
        self._words = words
        self._followed: tuple[PointStore, Sequence[str]] | None = None

    @property
    def measured(self) -> int | None:
        """As it was seen last; None where it never was."""
        return self._words.measured

    def follow(self, store: Store, points: Sequence[str]) -> None:
        """From now on it is about these points of the run whose root the store is."""
        self._followed = PointStore(store, Path()), points

    def note(self, progress: Progress) -> None:
        """Take over what progress says."""
        self._words.measured = progress.points_done

    def recount(self) -> None:
        """Ask the store; where it does not answer in time, what was seen last stands."""
        answers: SimpleQueue[int | None] = SimpleQueue()
        threading.Thread(target=lambda: answers.put(self._asked()), name="recount", daemon=True).start()
        try:
            found = answers.get(timeout=COUNT_WITHIN_S)
        except Empty:
            return
        if found is not None:
            self._words.measured = found

    def _asked(self) -> int | None:
        if self._followed is None:
            return None
        points, wanted = self._followed
        try:
            return len(points.measured(wanted))
        except NotDurable:
            return None  # it ends because of that, and says so
