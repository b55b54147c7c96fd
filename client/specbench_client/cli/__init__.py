"""The program `specbench`, also `kubectl specbench`: one file a command.

People's text goes to stderr, results to stdout. Errors become a message and an exit code here and nowhere else.
"""

from __future__ import annotations

import json
import sys
import traceback
from itertools import pairwise

import click

from specbench_api.errors import InvalidSpec
from specbench_api.outcome.ending import Exit
from specbench_client import __version__
from specbench_client.cli.groups import LazyGroup
from specbench_client.cli.pipes import UNREAD, close_full, close_unread
from specbench_client.errors import ClientError, Interrupted, NotDurable

HELP = """Does speculative decoding pay, for your traffic, model and hardware?

\b
  specbench validate examples/local-simulator.yaml   is the file well formed, can its engine do it?
  specbench run examples/local-simulator.yaml        measure every arm beside its baseline, on this machine
  specbench report specbench-results --latest        the answer again, in any format
  specbench decide specbench-results --latest        which arm, at which load

`specbench COMMAND --help` teaches each command by example. The same YAML is a Kubernetes resource:
kubectl apply -f run.yaml, then kubectl get sbr -w.

Exit codes: 0 finished and trustworthy, 1 a bug of ours, 2 bad input, 3 finished but not trustworthy or
not past its gate, 4 an engine failed, 5 results are not durable, 130 interrupted.
"""


HEADINGS = {
    "Plan and check": {
        "validate": "Is a run or a campaign well formed, and can its engine do it?",
        "plan": "What would be launched and measured, and what it costs.",
    },
    "Measure": {
        "run": "Measure a run or a campaign on this machine.",
        "measure": "Measure an OpenAI-compatible endpoint that already runs.",
        "simulate": "Serve an engine with a known truth, to try things on.",
    },
    "Read results": {
        "report": "Table, Markdown, CSV, JSON, HTML, PNG, or records as Parquet.",
        "slices": "Acceptance by position, context, length, turn and thought.",
        "curve": "Several runs against temperature, draft length, lengths or load.",
        "compare": "Two results cell by cell, or one beside published tables.",
        "audit": "Does a table of results, anybody's, agree with itself?",
    },
    "Decide": {
        "decide": "Which arm at which load, under latency targets, at your prices.",
        "predict": "Why it is not more, and what it would be for your traffic.",
        "schedule": "How many tokens to draft at which batch size.",
        "oracle": "How far could drafting go, and how far a fixed draft length?",
        "replay": "Would n-gram drafting help? From logs, without a server.",
    },
    "Watch": {
        "gate": "Pass or fail: is a result no worse than an earlier one?",
        "drift": "Has acceptance changed since, by the traffic or by the drafter?",
    },
    "Datasets": {
        "dataset": "Select, inspect, bring to length, fill in placeholders.",
    },
    "Cluster": {
        "import": "Print the SpecBenchRun that carries on a run that was lost.",
    },
}
"""Each is the object of its own name in the module of its own name, but for Python's own words."""
_PYTHONS_WORDS = {"import": "import_run"}


class Commands(LazyGroup):
    """The commands of the program."""

    headings = HEADINGS

    def place_of(self, name: str) -> tuple[str, str]:
        """Its own module."""
        own = _PYTHONS_WORDS.get(name, name)
        return f"specbench_client.cli.{own}", own


@click.group(
    cls=Commands, help=HELP, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110}
)
@click.version_option(__version__, prog_name="specbench")
def cli() -> None:
    """Group of all commands."""


def main() -> None:
    """Entry point: run, and end with the exit code that the outcome has."""
    sys.exit(exit_code(sys.argv[1:]))


def exit_code(arguments: list[str]) -> int:
    """Run one command line and map whatever happens to its exit code."""
    try:
        code = _exit_code(arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        return UNREAD if close_unread() else _bug()
    except OSError as error:  # what was printed last waited for this flush
        if not close_full(error):
            raise
        return _explained(_full(error), arguments)
    except SystemExit:  # what click makes of a broken pipe
        if not close_unread():
            raise
        return UNREAD
    return code


def _exit_code(arguments: list[str]) -> int:
    try:
        result = cli.main(args=arguments, prog_name="specbench", standalone_mode=False)
    except click.exceptions.Exit as error:
        return int(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        return _explained(Interrupted("what was finished is kept: run the same command again to go on"), arguments)
    except (InvalidSpec, ClientError, click.ClickException) as error:
        return _explained(error, arguments)
    except BrokenPipeError:
        raise
    except OSError as error:
        return _explained(_full(error), arguments) if close_full(error) else _bug()
    except Exception:  # noqa: BLE001  the last line of defence: anything unforeseen is a bug of ours, and says so
        return _bug()
    return result if isinstance(result, int) else Exit.OK


def _full(error: OSError) -> NotDurable:
    return NotDurable(f"the output cannot be written: {error.strerror}: make room, or send it elsewhere", "OutputFull")


def _bug() -> int:
    traceback.print_exc()
    click.echo("error: this is a bug of specbench; please report it with the lines above", err=True)
    return Exit.BUG


def _explained(error: InvalidSpec | ClientError | click.ClickException, arguments: list[str]) -> int:
    """Say what is wrong, to people on stderr and to programs as the one document on stdout; return the exit code."""
    if isinstance(error, click.ClickException):
        error.show()
        code, reason, lines = Exit.BAD_INPUT, "Usage", [error.format_message()]
    elif isinstance(error, InvalidSpec):
        code, reason, lines = Exit.BAD_INPUT, "InvalidSpec", [str(problem) for problem in error.problems]
    else:
        code, reason, lines = error.exit, error.reason, [str(error)]
    if not isinstance(error, click.ClickException):
        for line in lines:
            click.echo(f"error: {line}" if reason == "InvalidSpec" else f"error: {reason}: {line}", err=True)
    if _wants_json(arguments):
        click.echo(json.dumps({"error": {"exit": int(code), "reason": reason, "messages": lines}}))
    return code


def _wants_json(arguments: list[str]) -> bool:
    joined = {"--output=json", "-o=json", "-ojson"} & set(arguments)
    return bool(joined) or any(pair in (("--output", "json"), ("-o", "json")) for pair in pairwise(arguments))
