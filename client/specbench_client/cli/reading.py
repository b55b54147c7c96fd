"""Reading a run from a file, with `--set PATH=VALUE` over it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import yaml

from specbench_api.errors import InvalidSpec, NotYaml, Problem
from specbench_api.spec.paths import replaced, steps_of
from specbench_api.spec.reading import UNNAMED, parse_run, read_yaml
from specbench_api.spec.run import SpecBenchRun

STDIN = Path("-")


def read_run_file(path: Path, settings: tuple[str, ...] = ()) -> SpecBenchRun:
    """The run in a file, or on stdin where that is `-`, with overrides. Raises InvalidSpec."""
    name = "(stdin)" if path == STDIN else str(path)
    try:
        text = sys.stdin.read() if path == STDIN else path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise NotYaml([Problem(name, f"cannot be read: {error}")]) from error
    resource: Any = read_yaml(text, name)
    for setting in settings:
        resource = _with(resource, setting)
    return parse_run(resource)


def _with(resource: Any, setting: str) -> Any:
    name, separator, value = setting.partition("=")
    while separator and name.count("[") > name.count("]"):  # drafters[name=ngram].model=…: this one is of the path
        further, separator, value = value.partition("=")
        name = f"{name}={further}"
    if not separator or not name:
        raise InvalidSpec([Problem("--set", f"{setting!r} is not PATH=VALUE", "--set spec.load.repeats=1")])
    try:
        return replaced(resource, steps_of(name), yaml.safe_load(value))
    except (yaml.YAMLError, ValueError) as error:  # ValueError: a date that is none
        why = str(error).replace(UNNAMED, "the value")
        problem = Problem("--set", f"the value of {name} is not YAML: {why}", f"--set '{name}=VALUE'")
        raise InvalidSpec([problem]) from error
    except LookupError as error:
        problem = Problem("--set", f"{name} leads nowhere: {error.args[0]}", "such as spec.drafters[0].args")
        raise InvalidSpec([problem]) from error
