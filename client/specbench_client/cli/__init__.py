"""The program `specbench`, also `kubectl specbench`: one file a command.

People's text goes to stderr, results to stdout. Errors become a message and an exit code here and nowhere else.
"""

from __future__ import annotations

import importlib
import json
import sys
import traceback
from itertools import pairwise

import click

from specbench_api.errors import InvalidSpec
from specbench_api.outcome.ending import Exit
from specbench_client import __version__
from specbench_client.cli.pipes import UNREAD, close_full, close_unread
from specbench_client.errors import ClientError, Interrupted, NotDurable

HELP = """Does speculative decoding pay, for your traffic, model and hardware?

\b
  specbench validate run.yaml                     is it well formed, can the engine do it?
  specbench plan run.yaml                         what would be launched and measured
  specbench run run.yaml                          measure it on this machine; run.yaml may be a campaign of runs
  specbench measure --endpoint URL …              the instrument alone, against an engine that already runs
  specbench report specbench-results --latest     the answer again, as table, Markdown, CSV, JSON, HTML, PNG or Parquet
  specbench slices specbench-results --latest     where a drafter accepts much: by position, context, length, turn
  specbench import s3://bench-results --latest    a run whose resource was lost, to be applied and carried on
  specbench compare BEFORE AFTER                  two stored results beside each other
  specbench curve results --by temperature        speed-up and acceptance of several runs against one axis
  specbench decide specbench-results --latest     which arm at which load, and what it costs
  specbench gate RESULT --baseline EARLIER        pass or fail: is it no worse than an earlier result?
  specbench predict specbench-results --latest    why it is not more, and what it would be for other traffic
  specbench schedule specbench-results --latest   how many tokens to draft at which batch size
  specbench audit TABLE                           do a table's own numbers agree with one another?
  specbench drift REFERENCE CURRENT               has acceptance changed since, by the traffic or by the drafter?
  specbench replay answers.jsonl                  would an n-gram drafter help? from texts, without a server
  specbench oracle specbench-results --latest     how far could drafting go, and how far does a fixed length get?
  specbench dataset select prompts.jsonl …        a diverse subset of your own prompts, and more
  specbench simulate --drafter eagle3             an engine with a known truth, to try things on

The same YAML is a Kubernetes resource: kubectl apply -f run.yaml, then kubectl get sbr -w.

Exit codes: 0 finished and trustworthy, 1 a bug of ours, 2 bad input, 3 finished but not trustworthy or
not past its gate, 4 an engine failed, 5 results are not durable, 130 interrupted.
"""


COMMANDS = {
    "validate": "Check a SpecBenchRun or SpecBenchCampaign: fields, engines, drafters, arguments.",
    "plan": "Show launches, points, command lines and what is measured already; of a campaign, runs and GPU-hours.",
    "run": "Measure on this machine: engines as processes, results in a folder or S3.",
    "measure": "Measure an OpenAI-compatible endpoint that already runs.",
    "report": "Show a run's answer as table, Markdown, CSV, JSON, HTML or PNG, or every record as Parquet.",
    "slices": "Show where a drafter accepts much and where little: by position, context, length, turn, thought.",
    "import": "Print the SpecBenchRun that carries on results whose resource was lost.",
    "curve": "Draw speed-up and acceptance of stored runs against temperature, draft length, lengths or load.",
    "compare": "Show two stored results beside each other, cell by cell; or one beside published tables.",
    "decide": "Recommend an arm and a load, under latency targets and at your prices.",
    "gate": "Pass or fail a result against an earlier one.",
    "predict": "Lay speed-ups beside their prediction, factor by factor, or predict them for your mix of traffic.",
    "schedule": "Propose draft lengths by batch size, as vLLM, SGLang and TensorRT-LLM take them.",
    "audit": "Ask whether a table of results, anybody's, agrees with itself.",
    "drift": "Ask whether acceptance has changed since, and whether by the traffic or by the drafter.",
    "replay": "Replay n-gram drafting over prompts and outputs that are there already; no server.",
    "oracle": "Bound what draft lengths could gain, from a run with long drafts or from a trace.",
    "dataset": "Make prompts ready: select, inspect, bring to length, fill in placeholders.",
    "simulate": "Serve an engine with a known truth, in the foreground.",
}
"""Each is the object of its own name in the module of its own name, but for Python's own words."""
_PYTHONS_WORDS = {"import": "import_run"}


class Commands(click.Group):
    """Loads a command when it is called: pandas and matplotlib take seconds that `--help` need not wait for."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  click's signature
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        name = _PYTHONS_WORDS.get(cmd_name, cmd_name)
        command = getattr(importlib.import_module(f"specbench_client.cli.{name}"), name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


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
