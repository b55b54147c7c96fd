"""The exit codes of `specbench` and of its client Job."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """Exit codes of `specbench`. The client Job uses the same, except that UNTRUSTWORTHY is 0 there."""

    OK = 0
    """Finished and trustworthy, and no arm is at fault."""
    BUG = 1
    """A bug in specbench."""
    BAD_INPUT = 2
    """Invalid input; nothing was started."""
    UNTRUSTWORTHY = 3
    """Finished, but a point is Invalid, an arm is at fault, or the run is not trustworthy."""
    ENGINE_FAILED = 4
    """An engine failed; the results of the other arms are stored."""
    RESULTS_NOT_STORED = 5
    """Results could not be stored durably."""
    INTERRUPTED = 130
    """Interrupted; finished points are stored and reused by the next start."""
