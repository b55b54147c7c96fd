"""One command line from its start to its end: how errors become an exit code and a termination message.

Exit codes are `specbench_api.outcome.ending.Exit`; a Job ends with 0 when its points have manifests, whatever the
verdict. The termination message is written on every way out, a bug of ours included, since the operator reads nothing
else: the log on stderr is for people.
"""

from __future__ import annotations

import logging

import click

from specbench_api.errors import InvalidSpec
from specbench_api.outcome.ending import Exit, Termination
from specbench_client.errors import ClientError, Interrupted
from specbench_client.job.account import Account
from specbench_client.job.last_words import LastWords, Stopped, raise_stopped, termination_log
from specbench_client.job.logs import log_as_json
from specbench_client.job.program import Site, program

_log = logging.getLogger(__name__)


def run_program(arguments: list[str], words: LastWords | None = None) -> int:
    """Run one command line, tell the termination log how it ended, and return the exit code."""
    log_as_json()
    words = words or LastWords(termination_log(arguments))
    with words.stopping_by(lambda _: None):  # what has ended needs no stopping
        result = _result(arguments, words)
        if not isinstance(result, Termination):
            return result  # --help
        _log.log(logging.ERROR if result.code else logging.INFO, "%s: %s", result.reason, result.message)
        try:
            words.tell(result.to_message(), result.code)
        except OSError as error:
            _log.error("the termination message cannot be written to %s: %s", words.path, error.strerror)
    return result.code


def _result(arguments: list[str], words: LastWords) -> Termination | int:
    account = Account(words)
    failure: Exception
    try:
        with words.stopping_by(raise_stopped):
            site = Site(words, account)
            result = program.main(args=arguments, prog_name="specbench-client", standalone_mode=False, obj=site)
            return result if isinstance(result, Termination) else int(result or 0)
    except Stopped as stopped:
        failure = Interrupted(str(stopped))
    except Exception as error:  # noqa: BLE001 -- the last line of defence; what is not ours is a bug and said to be
        failure = error
    account.recount()
    return ending_of(failure, account.measured)


def ending_of(error: Exception, measured: int | None) -> Termination:
    """How the process ends because of an error; the one place where errors get their codes."""
    if isinstance(error, ClientError):
        return Termination(code=error.exit, reason=str(error.reason), message=str(error), measured=measured)
    if isinstance(error, InvalidSpec):
        return Termination(code=Exit.BAD_INPUT, reason="InvalidSpec", message=str(error), measured=measured)
    if isinstance(error, click.ClickException):
        return Termination(code=Exit.BAD_INPUT, reason="BadInput", message=error.format_message(), measured=measured)
    _log.error("a bug of specbench", exc_info=error)
    message = f"{type(error).__name__}: {error}; this is a bug of specbench: please report it with the client's log"
    return Termination(code=Exit.BUG, reason="Bug", message=message, measured=measured)
