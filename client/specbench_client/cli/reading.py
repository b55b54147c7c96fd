"""Reading a run from a file, with `--set PATH=VALUE` over it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from specbench_api.errors import InvalidSpec, NotYaml, Problem
from specbench_api.spec.reading import parse_run, read_yaml
from specbench_api.spec.run import SpecBenchRun


def read_run_file(path: Path, settings: tuple[str, ...] = ()) -> SpecBenchRun:
    """The run in a file, with overrides. Raises InvalidSpec."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise NotYaml([Problem(str(path), f"cannot be read: {error}")]) from error
    resource: Any = read_yaml(text)
    for setting in settings:
        resource = _with(resource, setting)
    return parse_run(resource)


def _with(resource: Any, setting: str) -> Any:
    name, separator, value = setting.partition("=")
    if not separator or not name:
        raise InvalidSpec([Problem("--set", f"{setting!r} is not PATH=VALUE", "--set spec.load.repeats=1")])
    steps = re.findall(r"[^.\[\]]+", name)
    try:
        return _replaced(resource, steps, yaml.safe_load(value))
    except yaml.YAMLError as error:
        problem = Problem("--set", f"the value of {name} is not YAML: {error}", f"--set '{name}=VALUE'")
        raise InvalidSpec([problem]) from error
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise InvalidSpec([Problem("--set", f"{name} leads nowhere: {error}", "see specbench plan FILE")]) from error


def _replaced(node: Any, steps: list[str], value: Any) -> Any:
    if not steps:
        return value
    step, rest = steps[0], steps[1:]
    if isinstance(node, list):
        index = int(step)
        if not 0 <= index < len(node):
            raise IndexError(f"there is no row {index} among {len(node)}")
        return [_replaced(item, rest, value) if at == index else item for at, item in enumerate(node)]
    branch = node if isinstance(node, dict) else {}
    return {**branch, step: _replaced(branch.get(step, {}), rest, value)}
