"""Work that lets go of the event loop now and then: a generator that yields after each slice and returns the result.

Reading an answer of ten thousand chunks takes longer than a decode step. Done in one piece it would hold up the
sockets; a thread would contend for the interpreter's lock at every system call; so it is cut, and whoever drives it
decides what comes between two slices.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")

Slices = Generator[None, None, T]

SLICE = 128
"""Chunks read between two yields: about a quarter of a millisecond."""


def finish(work: Slices[T]) -> T:
    """Do all of it at once."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: T = end.value
            return result
