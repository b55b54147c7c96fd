"""Reads stored runs; and the commands `measure`, `compare` and `decide` as functions, with the commands' options."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import click
import pandas as pd

from specbench_client.analysis.decision.recommendation import recommend
from specbench_client.cli import decide as decide_command
from specbench_client.cli import measure as measure_command
from specbench_client.cli.compare import compare_cells
from specbench_client.cli.run_execution import execute_run
from specbench_client.cli.run_selection import select_run
from specbench_client.cli.value_types import COMMA_SEPARATED
from specbench_client.documents.comparison import Comparison
from specbench_client.documents.recommendation import Recommendation
from specbench_client.errors import BadInput
from specbench_client.measure_flags import with_flag_names
from specbench_client.report.table_renderers import markdown_report
from specbench_client.report.text.comparison import comparison_markdown
from specbench_client.report.text.decision import decision_report
from specbench_client.report.text.text_table import csv_fields
from specbench_client.stored_runs.frames import frame_of
from specbench_client.stored_runs.run import Run


def read(where: str | Path, *, latest: bool = False) -> Run:
    """Read a stored run; nothing is written.

    `where`: the root of a run, or a folder of results; `s3://BUCKET/PREFIX` with the usual AWS environment variables.
    If there are several runs, `latest=True` selects the newest; otherwise the error lists them.

    An unfinished run has the results of its measured points. Raises BadInput if there is no such run, NotDurable if it
    is damaged or S3 does not respond.
    """
    try:
        return select_run(str(where), latest=latest)
    except BadInput as error:
        raise BadInput(str(error).replace("--latest", "latest=True"), error.reason) from error


def measure(endpoint: str | Sequence[str], *, dataset: str | None = None, **options: Any) -> Run:
    """Measure a running server as `specbench measure` does, and return the stored run.

    Every option of the command is a parameter: `--slo-tpot-ms 35` is `slo_tpot_ms=35`, `--extra-body` takes a mapping,
    and a repeatable option takes a sequence. Omitted options have the command's defaults. Progress is printed on
    stderr. It also works in a notebook; to interrupt it, interrupt the kernel.

    Raises BadInput before anything is sent, EngineFailed, NotDurable, Interrupted; finished points stay stored, and the
    same call continues after them.
    """
    with _parameter_names(measure_command.measure):
        given = {"endpoint": endpoint, "dataset": dataset, **options}
        plan, run_options = measure_command.planned_measurement(_parsed(measure_command.measure, given))
        outcome = execute_run(plan, run_options)
    for error in outcome.failed.values():
        raise error
    return outcome.run


def compare(before: Run, after: Run) -> RunComparison:
    """Compare two runs cell by cell, as ratios after / before; requests are paired by prompt.

    Raises BadInput if one of them has not ended, EvidenceInsufficient if nothing can be compared, NotDurable.
    """
    return RunComparison(compare_cells(before, after))


def decide(run: Run, **options: Any) -> Decision:
    """Recommend an arm and a load, as `specbench decide` does.

    Every option of the command is a parameter: `objective="latency"`, `slo_tpot_ms=35`,
    `gpu_price=2.5`. "No drafter pays" is an answer too.

    Raises BadInput, also if the run has not ended, InvalidSpec, NotDurable.
    """
    run.require_summary()
    with _parameter_names(decide_command.decide):
        parsed = _parsed(decide_command.decide, options, run.uri)
        request = decide_command.request_from_options(run.summary, parsed)
        return Decision(recommend(run.plan, run.summary, request))


@dataclass(frozen=True, repr=False)
class RunComparison:
    """The comparison of two runs. A notebook displays it as a table."""

    document: Comparison
    """All of it, as `specbench compare --output json` prints it, with what differs and what was not compared."""

    @cached_property
    def changes(self) -> pd.DataFrame:
        """One row per arm, workload, load and metric: both values, their ratio with its 95 % interval, conclusion."""
        own = ("arm", "workload", "load", "metric", "unit", "before", "after")
        rows = [
            {name: getattr(each, name) for name in own}
            | csv_fields("ratio", each.ratio)
            | {"conclusion": str(each.conclusion)}
            for each in self.document.cells
        ]
        return frame_of(rows)

    def _repr_markdown_(self) -> str:
        return comparison_markdown(self.document)

    def __repr__(self) -> str:
        before, after = self.document.before, self.document.after
        return f"<specbench.RunComparison {before.name} → {after.name}: {len(self.document.cells)} figures>"


@dataclass(frozen=True, repr=False)
class Decision:
    """A recommendation. A notebook displays it with its evidence and limits."""

    document: Recommendation
    """All of it, as `specbench decide --output json` prints it."""

    @property
    def sentence(self) -> str:
        """The recommendation in a sentence."""
        return self.document.sentence

    @cached_property
    def candidates(self) -> pd.DataFrame:
        """The evidence: one row per arm, workload and load, with the figure to optimise and the gain over the baseline.

        `excluded` is why the arm cannot be chosen there; empty if it can.
        """
        rows = [
            {"arm": each.arm, "workload": each.workload, "load": each.load, "unit": each.value and each.value.unit}
            | csv_fields("value", each.value)
            | csv_fields("gain", each.gain)
            | {
                "conclusion": each.conclusion and str(each.conclusion),
                "attainment": str(each.attainment),
                "excluded": each.excluded,
            }
            for each in self.document.candidates
        ]
        return frame_of(rows)

    def _repr_markdown_(self) -> str:
        return markdown_report(decision_report(self.document))

    def __repr__(self) -> str:
        return f"<specbench.Decision {self.sentence}>"


# Parameters are parsed by the commands themselves, so that types, bounds, defaults and messages are the same.


def _parsed(command: click.Command, given: Mapping[str, Any], *arguments: str) -> dict[str, Any]:
    """Return the values of all options of a command. Raises click's errors, BadInput for an unknown parameter."""
    options = _parameters(command)
    words: list[str] = []
    for name, value in given.items():
        if value is None:
            continue
        if name not in options:
            known = ", ".join(sorted(options))
            raise BadInput(f"{name}: `specbench {command.name}` has no such option: it has {known}")
        words += _words(options[name], value)
    return command.make_context(command.name, [*words, "--", *arguments]).params


def _words(option: click.Option, value: Any) -> Iterator[str]:
    """Yield a value as words of a command line."""
    flag = option.opts[0]
    if option.is_flag:
        if not isinstance(value, bool):
            raise BadInput(f"{flag}: {value!r} is not a choice: give True or False", "Usage")
        yield from [flag] if value else []
        return
    listed = isinstance(value, Sequence) and not isinstance(value, str)
    if listed and isinstance(option.type, COMMA_SEPARATED):
        yield f"{flag}={','.join(map(str, value))}"
        return
    for each in value if listed and option.multiple else [value]:
        yield f"{flag}={json.dumps(each) if isinstance(each, Mapping) else each}"


_COMMAND_LINE_ONLY = ("output", "latest", "emit", "workload")
"""Options about what is printed; `workload` belongs to `--emit`."""


def _parameters(command: click.Command) -> dict[str, click.Option]:
    """Return the options of a command by the names of parameters, without those that only a command line needs."""
    options = {each.opts[0]: each for each in command.params if isinstance(each, click.Option)}
    named = {flag.removeprefix("--").replace("-", "_"): option for flag, option in options.items()}
    return {name: option for name, option in named.items() if name not in _COMMAND_LINE_ONLY}


def _with_options(function: Callable[..., Any], command: click.Command) -> None:
    """Let the signature of a function, which `help` and notebooks show, contain the options of a command."""
    signature = inspect.signature(function)
    own = [each for each in signature.parameters.values() if each.kind is not inspect.Parameter.VAR_KEYWORD]
    further = [name for name in _parameters(command) if name not in signature.parameters]
    options = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation="Any") for name in further
    ]
    function.__signature__ = signature.replace(parameters=[*own, *options])  # type: ignore[attr-defined]


_with_options(measure, measure_command.measure)
_with_options(decide, decide_command.decide)

_FLAG = re.compile(r"(?<![\w-])'?(--[a-z][a-z0-9-]*)'?(?: / '?-\w'?)?")


@contextmanager
def _parameter_names(command: click.Command) -> Iterator[None]:
    """Raise errors of the command as BadInput, with the names of parameters in place of flags and fields."""
    names = {option.opts[0]: name for name, option in _parameters(command).items()}

    def renamed(text: str) -> str:
        return _FLAG.sub(lambda found: names.get(found[1], found[0]), text)

    try:
        yield
    except click.ClickException as error:
        raise BadInput(renamed(error.format_message()), "Usage") from error
    except BadInput as error:
        raise BadInput(renamed(with_flag_names(str(error))), error.reason) from error
