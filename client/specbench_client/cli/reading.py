"""Reading a run or a campaign from a file, with `--set PATH=VALUE` over it."""

from __future__ import annotations

import codecs
import sys
from pathlib import Path
from typing import Any

import yaml

from specbench_api.errors import InvalidSpec, NotYaml, Problem
from specbench_api.spec.campaign import SpecBenchCampaign
from specbench_api.spec.paths import replaced, steps_of
from specbench_api.spec.reading import UNNAMED, parse_resource, read_yaml
from specbench_api.spec.run import SpecBenchRun

STDIN = Path("-")
SETTABLE = ("spec", "metadata")
"""What `--set` may change: a run under another kind would only be refused field by field."""
UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def read_file(path: Path, settings: tuple[str, ...] = ()) -> SpecBenchRun | SpecBenchCampaign:
    """What is in a file, or on stdin where that is `-`, with overrides. Raises InvalidSpec."""
    name = "(stdin)" if path == STDIN else str(path)
    resource: Any = read_yaml(_text_of(path, name), name)
    for setting in settings:
        resource = _with(resource, setting)
    return parse_resource(resource)


def _text_of(path: Path, name: str) -> str:
    """The text, which is UTF-8 as kubectl asks for it too. Raises NotYaml."""
    try:
        data = sys.stdin.buffer.read() if path == STDIN else path.read_bytes()
    except OSError as error:
        raise NotYaml([Problem(name, f"cannot be read: {error}")]) from error
    if data.startswith(UTF_16):
        remedy = "save it as UTF-8 (in PowerShell: Out-File -Encoding utf8; elsewhere: iconv -f UTF-16 -t UTF-8)"
        raise NotYaml([Problem(name, "cannot be read: it is UTF-16, and what is applied is UTF-8", remedy)])
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        told = f"cannot be read: byte {error.start} is not UTF-8"
        raise NotYaml([Problem(name, told, "save it as UTF-8")]) from error


def _with(resource: Any, setting: str) -> Any:
    name, separator, value = setting.partition("=")
    while separator and name.count("[") > name.count("]"):  # drafters[name=ngram].model=…: this one is of the path
        further, separator, value = value.partition("=")
        name = f"{name}={further}"
    if not separator or not name:
        raise InvalidSpec([Problem("--set", f"{setting!r} is not PATH=VALUE", "--set spec.load.repeats=1")])
    if steps_of(name)[:1] and steps_of(name)[0] not in SETTABLE:
        message = f"{name} says what the file is, or what was seen of it: what is asked stands below spec"
        raise InvalidSpec([Problem("--set", message, "--set spec.load.repeats=1")])
    try:
        return replaced(resource, steps_of(name), yaml.safe_load(value))
    except (yaml.YAMLError, ValueError) as error:  # ValueError: a date that is none
        why = str(error).replace(UNNAMED, "the value")
        problem = Problem("--set", f"the value of {name} is not YAML: {why}", f"--set '{name}=VALUE'")
        raise InvalidSpec([problem]) from error
    except LookupError as error:
        problem = Problem("--set", f"{name} leads nowhere: {error.args[0]}", "such as spec.drafters[0].args")
        raise InvalidSpec([problem]) from error
