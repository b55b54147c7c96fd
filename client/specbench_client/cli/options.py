"""Arguments and options that several commands share, and reading the files that they name."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, TypeVar

import click
from pydantic import ValidationError

from specbench_api.api_model import ApiModel
from specbench_api.errors import InvalidSpec, NotYaml, Problem
from specbench_api.redaction import KNOWN_MIN
from specbench_api.spec.campaign import SpecBenchCampaign
from specbench_api.spec.field_paths import replaced, steps_of
from specbench_api.spec.latency_percentiles import TERMINAL_STATISTICS
from specbench_api.spec.parsing import (
    ONE_RESOURCE,
    TEXT_BYTES_MAX,
    parse_resource,
    problems_in,
    read_yaml,
    too_large,
    yaml_documents,
)
from specbench_api.spec.run import RunSpec, SpecBenchRun
from specbench_api.spec.secret_refs import API_KEY_VARIABLE
from specbench_api.spec.slo import Slo
from specbench_client.cli.value_types import (
    Choice,
    JsonObject,
    LatencyStatistics,
    SchemaNumber,
    SchemaNumbers,
    field_schemas,
)
from specbench_client.file_roots import similar_file
from specbench_client.measure_flags import FLAGS, SpecFlag

Command = TypeVar("Command", bound=Callable[..., Any])


EXAMPLES = Path(__file__).parents[1] / "examples"  # need no clone

# Options of most commands.

SPEC_PATH = click.Path(allow_dash=True, path_type=Path)
FILE = click.argument("file", type=SPEC_PATH)
"""`-` is stdin; relative paths in the spec are then relative to the working directory."""
SET = click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="PATH=VALUE",
    help="Override a field of the file: --set spec.load.repeats=1. Repeatable.",
)
RETRIES = click.option(
    "--retries",
    type=click.IntRange(min=0),
    metavar="N",
    help="If the client or other traffic spoils an interleaved repeat, measure two more, at most N times."
    f"  [default: spec.retries, or {RunSpec.model_fields['retries'].default}]",
)
RETRY_INVALID = click.option("--retry-invalid", is_flag=True, help="Apply --retries to a finished run.")
NEW = click.option("--new", is_flag=True, help="Measure again, as a new run; the earlier run is kept.")
KEEP_TEXT = click.option("--keep-text", is_flag=True, help="Store the text of every answer in the records.")
RESULTS = click.option(
    "--results",
    default="specbench-results",
    show_default=True,
    metavar="DIR-or-URI",
    help="Where to store results: a folder, or s3://BUCKET/PREFIX.",
)
PERCENTILES = click.option(
    "--percentiles",
    type=LatencyStatistics(),
    help=f"Latencies in the tables of text and Markdown: some of {', '.join(LatencyStatistics.known)}."
    f"  [default: {','.join(TERMINAL_STATISTICS).replace('p', '')} in text]",
)
LATEST = click.option("--latest", is_flag=True, help="Use the newest run if the location contains several.")
API_KEY_ENV = click.option(
    "--api-key-env",
    metavar="NAME",
    help=f"Environment variable with the API key; keys of {KNOWN_MIN} or more characters are removed from what servers"
    f" answer.  [default: {API_KEY_VARIABLE}, if set]",
)
ONLY_WORKLOAD = click.option("--workload", metavar="NAME", help="Use only this workload.  [default: all]")


def output_option(*formats: str, help_text: str = "Output format.") -> Callable[[Command], Command]:
    """Return the option --output (-o) with these formats; the first one is the default."""
    return click.option(
        "--output",
        "-o",
        "output",
        type=Choice(formats),
        default=formats[0],
        show_default=True,
        help=help_text,
    )


OUTPUT = output_option("text", "json", help_text="Output format; json prints one document on stdout.")
OUTPUT_MARKDOWN = output_option("text", "json", "markdown")


# Options that set fields of a SpecBenchRun.


def field_options(flags: Sequence[SpecFlag]) -> Callable[[Command], Command]:
    """Return the options of flags. Types, bounds, values and defaults are those of their fields."""
    return several_options(*map(_field_option, flags))


def several_options(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """Return a decorator that adds options to a command, in this order."""

    def add(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return add


def _field_option(flag: SpecFlag) -> Callable[[Command], Command]:
    schemas = field_schemas(flag.path)
    kinds, values = {schema.get("type") for schema in schemas}, next((s["enum"] for s in schemas if "enum" in s), None)
    default, text = schemas[0].get("default"), flag.help
    if default is not None and not kinds & {"boolean", "object"} and "[default: " not in text:
        text += f"  [default: {Choice(()).normalize_choice(default, None) if values else default}]"
    settings: dict[str, Any] = {"help": text, "metavar": flag.metavar}
    if values:
        settings |= {"type": Choice(values)}
    elif "boolean" in kinds:
        settings |= {"is_flag": True}
    elif kinds & {"integer", "number"}:
        number = SchemaNumber(flag.path, flag.maximum)
        several = {"type": SchemaNumbers(number), "multiple": True, "callback": _joined}
        settings |= several if "array" in kinds else {"type": number}
    elif "string" not in kinds:
        settings |= {"type": JsonObject()}
    return click.option(flag.name, *filter(None, [flag.short]), flag.parameter, **settings)


def _joined(
    _context: click.Context, _option: click.Parameter, given: Sequence[Sequence[float]]
) -> Sequence[float] | None:
    """Return the numbers of a repeatable option; None if there are none."""
    numbers = [number for each in given for number in each]
    twice = next((number for at, number in enumerate(numbers) if number in numbers[:at]), None)
    if twice is not None:
        raise click.BadParameter(f"{twice:g} is given twice: give each once, and --repeats to measure it more often")
    return numbers or None


def with_fields(resource: Any, flags: Sequence[SpecFlag], options: Mapping[str, Any]) -> Any:
    """Return a spec with the fields of the flags that were given. A flag `--no-…` sets its field to false."""
    for flag in flags:
        value = options[flag.parameter]
        if value is not None and value is not False:
            set_to = not flag.name.startswith("--no-") if value is True else value
            resource = replaced(resource, steps_of(flag.path), set_to)
    return resource


# Service-level objectives: the latency limits that goodput is judged by.

SLO_FLAGS = [flag for flag in FLAGS if flag.path.startswith("slo.")]
slo_options = field_options(SLO_FLAGS)
"""Adds --slo-ttft-ms, --slo-tpot-ms and --slo-e2e-ms to a command, as `slo_ttft_ms` and so on."""


def slo_from_options(options: Mapping[str, Any]) -> Slo | None:
    """Return the limits that were given, or None if there are none."""
    limits = with_fields({}, SLO_FLAGS, options).get("slo")
    return Slo.model_validate(limits) if limits else None


def override_slo(stored: Slo | None, given: Slo | None) -> Slo | None:
    """Return the stored limits, replaced where the command line gives others."""
    if stored is None or given is None:
        return given or stored
    return stored.model_copy(update=given.targets)


# Reading a run or a campaign from a file, with the overrides of `--set PATH=VALUE`.


def prefixed(problems: Sequence[Problem], name: str) -> list[Problem]:
    """Return the problems with the name of the file in front of their paths."""
    return [Problem(f"{name}: {each.path}", each.message, each.remedy) for each in problems]


Model = TypeVar("Model", bound=ApiModel)


def validated(kind: type[Model], data: Mapping[str, Any], name: str) -> Model:
    """Return data as a model. `name`: the file or option that it is from. Raises InvalidSpec."""
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        raise InvalidSpec(prefixed(problems_in(error, kind), name)) from error


STDIN = Path("-")
SETTABLE = ("spec", "metadata")
"""What `--set` may change. Changing `kind` would only produce an error for every field."""


def read_spec_file(path: Path, settings: tuple[str, ...] = ()) -> SpecBenchRun | SpecBenchCampaign:
    """Return the resource in a file, or on stdin for `-`, with overrides applied. Raises InvalidSpec."""
    resource: Any = read_yaml_file(path, ONE_RESOURCE)
    for setting in settings:
        resource = _override(resource, setting)
    return parse_resource(resource)


def read_yaml_file(path: Path, remedy: str) -> dict[str, Any]:
    """Return the mapping in a YAML file, or on stdin for `-`. `remedy`: what it should contain. Raises NotYaml."""
    name = "(stdin)" if path == STDIN else str(path)
    return read_yaml(_read_text(path, name), name, remedy)


def _read_text(path: Path, name: str) -> str:
    """Return the text, which must be UTF-8, as for kubectl. Raises NotYaml."""
    try:
        with nullcontext(sys.stdin.buffer) if path == STDIN else path.open("rb") as file:
            data = file.read(TEXT_BYTES_MAX + 1)
    except OSError as error:
        remedy = similar_file(path, Path()).strip() or "give a file that exists and may be read"
        raise NotYaml([Problem(name, f"cannot be read: {error.strerror}", remedy)]) from error
    if len(data) > TEXT_BYTES_MAX:
        raise too_large(name)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        message = f"cannot be read: byte {error.start} is not UTF-8"
        raise NotYaml([Problem(name, message, "save it as UTF-8 (in PowerShell: Out-File -Encoding utf8)")]) from error


def _override(resource: Any, setting: str) -> Any:
    name, separator, value = setting.partition("=")
    while separator and name.count("[") > name.count(
        "]"
    ):  # the "=" in drafters[name=ngram].model=… is part of the path
        further, separator, value = value.partition("=")
        name = f"{name}={further}"
    if not separator or not name:
        raise InvalidSpec([Problem("--set", f"{setting!r} is not PATH=VALUE", "--set spec.load.repeats=1")])
    if steps_of(name)[:1] and steps_of(name)[0] not in SETTABLE:
        message = f"{name} cannot be set: only fields of spec and metadata can"
        raise InvalidSpec([Problem("--set", message, "--set spec.load.repeats=1")])
    try:
        documents = yaml_documents(value, "the value")
        return replaced(resource, steps_of(name), documents[0] if documents else None)
    except NotYaml as error:
        problem = Problem("--set", f"the value of {name}: {error.problems[0].message}", f"--set '{name}=VALUE'")
        raise InvalidSpec([problem]) from error
    except LookupError as error:
        problem = Problem(
            "--set", f"{name} is not a field of the file: {error.args[0]}", "give a path such as spec.drafters[0].args"
        )
        raise InvalidSpec([problem]) from error
