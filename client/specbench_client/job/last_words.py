"""What the client leaves behind, and that it ends in time: the termination message, and SIGTERM and SIGINT.

A signal is answered at once with a message that says what is known, for the way out may take longer than the pod is
given: an S3 that accepts and never answers holds threads for minutes, and the interpreter waits for them. So a thread
that waits for nothing but the signal writes, and ends the process when its time is up. The orderly way out goes on
meanwhile; what it says at its end stands instead of the first words.

Nothing of ours but this is imported here, and no library: it is at work before they are loaded.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import NoReturn

TERMINATION_LOG = Path("/dev/termination-log")
"""Where the kubelet reads; it exists in every container."""
LEAVE_WITHIN_S = 12.0
"""From the signal to the end of the process, whatever hangs. The pod is given 30 s, and its last words must be read."""
INTERRUPTED = 130
KEPT = "points with a manifest are kept; the same command goes on at the first without one"
SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Stopped(BaseException):
    """A signal asked us to stop. Not an Exception: libraries take those for failures of theirs, and try again."""

    def __init__(self, number: int) -> None:
        super().__init__(f"{signal.Signals(number).name}: {KEPT}")


class LastWords:
    """The termination message of this process, and the way in which it hears that it shall stop."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.measured: int | None = None
        """Points that are stored, as far as it is known."""
        self._code: int | None = None
        self._writing = threading.Lock()
        self._heard, self._ring = False, -1
        self._stop: Callable[[int], object] = self._leave_now

    def listen(self) -> None:
        """Hear signals from now on. Until `stopping_by` says otherwise, the process ends at once."""
        bell, self._ring = os.pipe()
        threading.Thread(target=self._watch, args=(bell,), name="last words", daemon=True).start()
        for number in SIGNALS:
            signal.signal(number, self._hear)

    @contextmanager
    def stopping_by(self, act: Callable[[int], object]) -> Iterator[None]:
        """What a first signal does meanwhile, in the main thread between any two of its steps."""
        before, self._stop = self._stop, act
        try:
            yield
        finally:
            self._stop = before

    def tell(self, text: str, code: int) -> None:
        """The last words. Nothing that was said before counts, and nothing is said after them. Raises OSError."""
        with self._writing:
            self._code = code
            self._write(text)

    def leave_soon(self) -> None:
        """End the process within the time that a signal would give it."""
        threading.Thread(target=self._leave, name="leaving", daemon=True).start()

    def _hear(self, number: int, _frame: FrameType | None) -> None:
        """The handler takes no lock: whatever the main thread is doing, it may hold it."""
        if not self._heard:  # who asks twice is answered once: the way out must not be interrupted
            self._heard = True
            os.write(self._ring, bytes([number]))
            self._stop(number)

    def _watch(self, bell: int) -> None:
        (number,) = os.read(bell, 1)
        self._tell_first(number)
        self._leave()

    def _tell_first(self, number: int) -> None:
        said = {
            "code": INTERRUPTED,
            "reason": "Interrupted",
            "message": str(Stopped(number)),
            "measured": self.measured,
        }
        with self._writing:
            if self._code is not None:
                return
            try:
                self._write(json.dumps(said))
            except OSError as error:
                _log(f"the termination message cannot be written to {self.path}: {error.strerror}")

    def _leave(self) -> NoReturn:
        time.sleep(LEAVE_WITHIN_S)
        _log(f"something hangs for {LEAVE_WITHIN_S:g} s: the process ends without it")
        self._exit()

    def _leave_now(self, number: int) -> NoReturn:
        self._tell_first(number)
        self._exit()

    def _exit(self) -> NoReturn:
        os._exit(INTERRUPTED if self._code is None else self._code)

    def _write(self, text: str) -> None:
        if self.path is not None:
            self.path.write_text(text + "\n")


def raise_stopped(number: int) -> NoReturn:
    """The way to stop what runs in the main thread alone."""
    raise Stopped(number)


def termination_log(arguments: list[str]) -> Path | None:
    """Where to write, read from bare arguments; None where there is no such place."""
    flag = "--termination-log"
    for index, argument in enumerate(arguments):
        if argument.startswith(f"{flag}="):
            return Path(argument.removeprefix(f"{flag}="))
        if argument == flag and index + 1 < len(arguments):
            return Path(arguments[index + 1])
    return TERMINATION_LOG if TERMINATION_LOG.exists() else None


def _log(message: str) -> None:
    """As the program's log has it; the logging of a process that hangs may hang too."""
    line = json.dumps({"level": "error", "logger": __name__, "message": message})
    with suppress(OSError):  # nobody listens any more
        os.write(2, f"{line}\n".encode())
