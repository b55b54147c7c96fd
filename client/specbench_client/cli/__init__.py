"""The command `specbench`, also installed as `kubectl specbench`. Each subcommand has its own module.

Results go to stdout, messages for people to stderr. This module alone turns exceptions into messages and exit codes.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable
from itertools import pairwise

import click

from specbench_api.errors import InvalidSpec
from specbench_api.outcome.exit_codes import Exit
from specbench_client import __version__
from specbench_client.cli.command_groups import LazyGroup
from specbench_client.cli.streams import (
    EXIT_BROKEN_PIPE,
    close_broken_streams,
    close_full_stdout,
    echo,
    echo_json,
    tolerate_missing_characters,
)
from specbench_client.errors import ClientError, Interrupted, NotDurable
from specbench_client.optional_dependencies import program

HELP = """Measure whether speculative decoding pays for your traffic, model and hardware.

\b
  specbench demo                                     measure llama.cpp on this machine, without a GPU
  specbench measure --endpoint URL --baseline URL    compare two servers that run already
  specbench run run.yaml                             measure every arm and its baseline on this machine
  specbench report specbench-results --latest        show the result again, in any format
  specbench decide specbench-results --latest        recommend an arm and a load

`specbench COMMAND --help` shows examples and options of each command. The same YAML is a Kubernetes resource:
kubectl apply -f run.yaml, then kubectl get sbr -w.

Exit codes: 0 finished and trustworthy, 1 a bug in specbench, 2 bad input, 3 finished, but not trustworthy,
an arm is at fault, or its gate did not pass, 4 an engine failed, 5 results could not be stored, 130 interrupted.
"""


HEADINGS = {
    "Plan and check": {
        "validate": "Check files of runs and campaigns, as a cluster does.",
        "plan": "Show what would be launched and measured, and the GPU-hours.",
    },
    "Measure": {
        "run": "Measure a run or a campaign on this machine.",
        "measure": "Measure an OpenAI-compatible endpoint that is already running.",
        "demo": "Measure llama.cpp on this machine, without a GPU.",
        "llama-server": "Serve a model with llama.cpp, from a prebuilt wheel.",
        "simulate": "Serve a simulated engine with known acceptance and step times.",
    },
    "Read results": {
        "report": "Show a result: text, Markdown, CSV, JSON, HTML, PNG, Parquet.",
        "import": "Read results of vllm bench, SGLang, AIPerf, guidellm, …",
        "compare": "Compare two results, cell by cell.",
        "decide": "Recommend an arm and a load, given latency limits and prices.",
        "gate": "Pass or fail: is a result no worse than an earlier one?",
        "analyze": "Explain results: breakdown, curve, explain, oracle, drift, …",
    },
    "Prepare and recover": {
        "dataset": "List, inspect, select and prepare prompts.",
        "recover": "Print the SpecBenchRun that continues a run that was lost.",
    },
}


@click.group(
    cls=LazyGroup,
    headings=HEADINGS,
    modules={"llama-server": "demo"},
    help=HELP,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.version_option(__version__, prog_name="specbench")
def cli() -> None:
    """The group of all commands; its help text is HELP."""


def main() -> None:
    """Run the command line of this process and exit with its exit code."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: else the process would end without a message
    # Registered first, so called last. Then nothing can hang any more, and Python sets the default handlers, with which
    # a signal would change the exit code.
    atexit.register(_handle_signals, signal.SIG_IGN)
    tolerate_missing_characters()
    try:
        code = exit_code(sys.argv[1:])
        _end_at_once_on_signals(code)
    except KeyboardInterrupt:  # one more signal, while the message of the first is printed
        code = Exit.INTERRUPTED
        _end_at_once_on_signals(code)
    sys.exit(code)


def _end_at_once_on_signals(code: int) -> None:
    """Let a signal end a shutdown that hangs, for example while threads end, and keep the exit code."""
    _handle_signals(lambda *_: os._exit(code))


def _handle_signals(handler: Callable[..., object] | signal.Handlers) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, handler)


def exit_code(arguments: list[str]) -> int:
    """Run one command line and return its exit code; exceptions become messages."""
    try:
        code = _exit_code(arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        return EXIT_BROKEN_PIPE if close_broken_streams() else _bug()
    except OSError as error:  # the flush writes what click and print have buffered
        if not close_full_stdout(error):
            raise
        return _report_error(_output_full(error), arguments)
    except SystemExit:  # click exits on a broken pipe
        if not close_broken_streams():
            raise
        return EXIT_BROKEN_PIPE
    return code


def _exit_code(arguments: list[str]) -> int:
    try:
        result = cli.main(args=arguments, prog_name=program(), standalone_mode=False)
    except click.exceptions.Exit as error:
        return int(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        return _report_error(Interrupted(), arguments)
    except (InvalidSpec, ClientError, click.ClickException) as error:
        return _report_error(error, arguments)
    except BrokenPipeError:
        raise
    except OSError as error:
        return _report_error(_output_full(error), arguments) if close_full_stdout(error) else _bug()
    except Exception:  # noqa: BLE001  the last line of defence: anything unexpected is a bug in specbench
        return _bug()
    return result if isinstance(result, int) else Exit.OK


def _output_full(error: OSError) -> NotDurable:
    return NotDurable(
        f"stdout: cannot be written: {error.strerror}: free some disk space, or redirect it elsewhere", "OutputFull"
    )


def _bug() -> int:
    echo(traceback.format_exc().rstrip("\n"), err=True)
    echo("error: this is a bug in specbench; please report it with the lines above", err=True)
    return Exit.BUG


def _report_error(error: InvalidSpec | ClientError | click.ClickException, arguments: list[str]) -> int:
    """Print the error on stderr, and with --output json also as the document on stdout; return the exit code."""
    if isinstance(error, click.ClickException):
        error.show()
        code, reason, lines = Exit.BAD_INPUT, "Usage", [error.format_message()]
    elif isinstance(error, InvalidSpec):
        code, reason, lines = Exit.BAD_INPUT, error.reason, [str(problem) for problem in error.problems]
    else:
        code, reason, lines = error.exit, error.reason, [str(error)]
    if not isinstance(error, click.ClickException):
        for line in lines:
            echo(_error_line(error, line), err=True)
        if isinstance(error, InvalidSpec) and not error.complete:
            echo("note: further checks follow once this is corrected", err=True)
    if _wants_json(arguments):
        echo_json(json.dumps({"error": {"exit": int(code), "reason": reason, "messages": lines}}))
    return code


def _error_line(error: InvalidSpec | ClientError, line: str) -> str:
    """Return a line of the message as it is printed. An interruption is what the user wanted, not an error."""
    if isinstance(error, Interrupted):
        return f"{line[:1].upper()}{line[1:]}"
    return f"error: {line}" if isinstance(error, InvalidSpec) else f"error: {error.reason}: {line}"


def _wants_json(arguments: list[str]) -> bool:
    words = [word.lower() for word in arguments]  # as `Choice` accepts values in any case
    joined = {"--output=json", "-o=json", "-ojson"} & set(words)
    return bool(joined) or any(pair in (("--output", "json"), ("-o", "json")) for pair in pairwise(words))
