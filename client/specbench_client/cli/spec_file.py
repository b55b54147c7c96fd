"""Reading a run or a campaign from a file, with the overrides of `--set PATH=VALUE`."""

from __future__ import annotations

import codecs
import sys
from pathlib import Path
from typing import Any

import yaml

from specbench_api.errors import InvalidSpec, NotYaml, Problem
from specbench_api.spec.campaign import SpecBenchCampaign
from specbench_api.spec.field_paths import replaced, steps_of
from specbench_api.spec.parsing import UNNAMED, parse_resource, read_yaml
from specbench_api.spec.run import SpecBenchRun

STDIN = Path("-")
SETTABLE = ("spec", "metadata")
"""What `--set` may change. Changing `kind` would only produce an error for every field."""
UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def read_spec_file(path: Path, settings: tuple[str, ...] = ()) -> SpecBenchRun | SpecBenchCampaign:
    """Return the resource in a file, or on stdin for `-`, with overrides applied. Raises InvalidSpec."""
    name = "(stdin)" if path == STDIN else str(path)
    resource: Any = read_yaml(_read_text(path, name), name)
    for setting in settings:
        resource = _override(resource, setting)
    return parse_resource(resource)


def _read_text(path: Path, name: str) -> str:
    """Return the text, which must be UTF-8, as for kubectl. Raises NotYaml."""
    try:
        data = sys.stdin.buffer.read() if path == STDIN else path.read_bytes()
    except OSError as error:
        raise NotYaml([Problem(name, f"cannot be read: {error}")]) from error
    if data.startswith(UTF_16):
        remedy = "save it as UTF-8 (in PowerShell: Out-File -Encoding utf8; elsewhere: iconv -f UTF-16 -t UTF-8)"
        raise NotYaml([Problem(name, "cannot be read: it is UTF-16, expected UTF-8", remedy)])
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        message = f"cannot be read: byte {error.start} is not UTF-8"
        raise NotYaml([Problem(name, message, "save it as UTF-8")]) from error


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
        return replaced(resource, steps_of(name), yaml.safe_load(value))
    except (yaml.YAMLError, ValueError) as error:  # ValueError: not a possible date
        why = str(error).replace(UNNAMED, "the value")
        problem = Problem("--set", f"the value of {name} is not YAML: {why}", f"--set '{name}=VALUE'")
        raise InvalidSpec([problem]) from error
    except LookupError as error:
        problem = Problem(
            "--set", f"{name} is not a field of the file: {error.args[0]}", "give a path such as spec.drafters[0].args"
        )
        raise InvalidSpec([problem]) from error
