"""Writes the termination message, and ends the process in time after SIGTERM or SIGINT.

On a signal, a message with the known state is written at once, because the clean-up may take longer than the pod's
grace period: an S3 server that accepts connections and never answers blocks threads for minutes, and the interpreter
waits for them. A separate thread writes this message and exits the process when the time is up. The clean-up continues
meanwhile, and the message at its end replaces the first one.

This module imports nothing but the standard library, since it must work before other modules are loaded.
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
"""The file that the kubelet reads; it exists in every container."""
EXIT_WITHIN_S = 12.0
"""Maximum time from a signal to the exit. The pod's grace period is 30 s, and the message must be read within it."""
INTERRUPTED = 130
RESUME_HINT = "points with a manifest are kept; the same command continues with the first point without one"
SIGNALS = (signal.SIGTERM, signal.SIGINT)


class StopRequested(BaseException):
    """A signal requested a stop. Not an Exception, because libraries catch those and retry."""

    def __init__(self, number: int) -> None:
        super().__init__(f"{signal.Signals(number).name}: {RESUME_HINT}")


class TerminationWriter:
    """Writes the termination message of this process and handles its signals."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self._code: int | None = None
        self._writing = threading.Lock()
        self._signalled, self._signal_pipe = False, -1
        self._stop: Callable[[int], object] = self._leave_now

    def listen(self) -> None:
        """Handle signals from now on. Until `on_signal` is used, a signal ends the process at once."""
        signal_pipe, self._signal_pipe = os.pipe()
        threading.Thread(target=self._watch, args=(signal_pipe,), name="last words", daemon=True).start()
        for number in SIGNALS:
            signal.signal(number, self._handle_signal)

    @contextmanager
    def on_signal(self, act: Callable[[int], object]) -> Iterator[None]:
        """Set what the first signal does inside the block; `act` runs in the main thread between any two steps."""
        before, self._stop = self._stop, act
        try:
            yield
        finally:
            self._stop = before

    def write(self, text: str, code: int) -> None:
        """Write the final message, which replaces any earlier one and is never replaced. Raises OSError."""
        with self._writing:
            self._code = code
            self._write(text)

    def exit_within_deadline(self) -> None:
        """Exit the process within EXIT_WITHIN_S, even if threads hang."""
        threading.Thread(target=self._leave, name="leaving", daemon=True).start()

    def _handle_signal(self, number: int, _frame: FrameType | None) -> None:
        """Handle a signal without taking a lock, because the interrupted main thread may hold it."""
        if not self._signalled:  # A second signal is ignored: it must not interrupt the clean-up.
            self._signalled = True
            os.write(self._signal_pipe, bytes([number]))
            self._stop(number)

    def _watch(self, signal_pipe: int) -> None:
        (number,) = os.read(signal_pipe, 1)
        self._write_interrupted(number)
        self._leave()

    def _write_interrupted(self, number: int) -> None:
        message = {"code": INTERRUPTED, "reason": "Interrupted", "message": str(StopRequested(number))}
        with self._writing:
            if self._code is not None:
                return
            try:
                self._write(json.dumps(message))
            except OSError as error:
                _log_json(f"the termination message cannot be written to {self.path}: {error.strerror}")

    def _leave(self) -> NoReturn:
        time.sleep(EXIT_WITHIN_S)
        _log_json(f"a thread did not end within {EXIT_WITHIN_S:g} s: the process exits without it")
        self._exit()

    def _leave_now(self, number: int) -> NoReturn:
        self._write_interrupted(number)
        self._exit()

    def _exit(self) -> NoReturn:
        os._exit(INTERRUPTED if self._code is None else self._code)

    def _write(self, text: str) -> None:
        if self.path is not None:
            self.path.write_text(text + "\n")


def raise_stop_requested(number: int) -> NoReturn:
    """Raise StopRequested, to stop work that runs in the main thread."""
    raise StopRequested(number)


def termination_log(arguments: list[str]) -> Path | None:
    """Return the file of the termination message, read from raw arguments; None if there is none."""
    flag = "--termination-log"
    for index, argument in enumerate(arguments):
        if argument.startswith(f"{flag}="):
            return Path(argument.removeprefix(f"{flag}="))
        if argument == flag and index + 1 < len(arguments):
            return Path(arguments[index + 1])
    return TERMINATION_LOG if TERMINATION_LOG.exists() else None


def _log_json(message: str) -> None:
    """Write a log line without the logging module, whose locks may be held by a hanging thread."""
    line = json.dumps({"level": "error", "logger": __name__, "message": message})
    with suppress(OSError):  # stderr may be closed.
        os.write(2, f"{line}\n".encode())
