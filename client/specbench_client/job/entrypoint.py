"""Runs one command line, and converts errors to an exit code and a termination message.

Exit codes are `specbench_api.outcome.termination.Exit`; a Job exits with 0 when its points have manifests, whatever the
results. The termination message is always written, also after a bug, since the operator reads nothing else. The log on
stderr is for users: one JSON object per line, for the collector of the pod's log, and never parsed by specbench.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime

import click

from specbench_api.errors import InvalidSpec
from specbench_api.outcome.termination import Exit, Termination
from specbench_client.errors import ClientError, Interrupted
from specbench_client.job.commands import program
from specbench_client.job.termination import StopRequested, TerminationWriter, raise_stop_requested, termination_log
from specbench_client.known_secrets import without_secrets


def log_as_json() -> None:
    """Configure logging as JSON lines on stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonLines())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)


class _JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": without_secrets(record.getMessage()),
        }
        if record.exc_info:
            line["exception"] = without_secrets(self.formatException(record.exc_info))
        return json.dumps(line, ensure_ascii=False)


_log = logging.getLogger(__name__)


def run_program(arguments: list[str], termination: TerminationWriter | None = None) -> int:
    """Run one command line, write the termination message, and return the exit code."""
    log_as_json()
    termination = termination or TerminationWriter(termination_log(arguments))
    with termination.on_signal(lambda _: None):  # The command has ended: there is nothing to stop.
        result = _result(arguments, termination)
        if not isinstance(result, Termination):
            return result  # --help
        _log.log(logging.ERROR if result.code else logging.INFO, "%s: %s", result.reason, result.message)
        try:
            termination.write(result.to_message(), result.code)
        except OSError as error:
            _log.error("the termination message cannot be written to %s: %s", termination.path, error.strerror)
    return result.code


def _result(arguments: list[str], termination: TerminationWriter) -> Termination | int:
    failure: Exception
    try:
        with termination.on_signal(raise_stop_requested):
            result = program.main(args=arguments, prog_name="specbench-client", standalone_mode=False, obj=termination)
            return result if isinstance(result, Termination) else int(result or 0)
    except StopRequested as stopped:
        failure = Interrupted(str(stopped))
    except Exception as error:  # noqa: BLE001 -- any other exception is a bug and reported as one
        failure = error
    return termination_of(failure)


def termination_of(error: Exception) -> Termination:
    """Return the exit code and termination message of an error, without secrets."""
    code, reason, message = _outcome_of(error)
    return Termination(code=code, reason=reason, message=without_secrets(message))


def _outcome_of(error: Exception) -> tuple[Exit, str, str]:
    """Exit code, reason and message of an error."""
    if isinstance(error, ClientError):
        return error.exit, str(error.reason), str(error)
    if isinstance(error, InvalidSpec):
        return Exit.BAD_INPUT, "InvalidSpec", str(error)
    if isinstance(error, click.ClickException):
        return Exit.BAD_INPUT, "BadInput", error.format_message()
    _log.error("a bug in specbench", exc_info=error)
    message = f"{type(error).__name__}: {error}; this is a bug in specbench: please report it with the client's log"
    return Exit.BUG, "Bug", message
