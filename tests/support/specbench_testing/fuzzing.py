"""Bounds for fuzzing: a case that takes far too long or too much memory fails with its seed and number."""

from __future__ import annotations

import faulthandler
import os
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

HANG_S = 60
"""A case that is still at work after so long counts as endless; ordinary cases take milliseconds."""
MEMORY_BYTES_MAX = 1024**3
"""How much more memory than before a whole seed may take."""
SEED_VARIABLE = "SPECBENCH_FUZZ_SEED"


def shifted(seeds: range) -> range:
    """The seeds, each increased by SPECBENCH_FUZZ_SEED, with which the same tests have other cases."""
    shift = int(os.environ.get(SEED_VARIABLE, "0"))
    return range(seeds.start + shift, seeds.stop + shift)


@contextmanager
def bounded_case(label: str) -> Iterator[None]:
    """Fail the case if it does not end, and name it in any failure."""

    def ring(_: int, frame: FrameType | None) -> None:
        faulthandler.dump_traceback(all_threads=False)
        raise TimeoutError(f"{label} is still at work after {HANG_S} s in {frame}")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(HANG_S)
    try:
        yield
    except BaseException as error:
        error.add_note(label)
        raise
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def bounded_memory() -> Iterator[None]:
    """Fail if the largest resident size grows by more than the limit."""
    before = _peak_bytes()
    yield
    grown = _peak_bytes() - before
    assert grown < MEMORY_BYTES_MAX, f"the peak of the resident memory grew by {grown / 2**20:.0f} MiB"


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
