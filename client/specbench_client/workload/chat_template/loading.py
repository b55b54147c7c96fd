"""A declaration → the template that is applied: its text, its tokenizer, and the variables that it is given."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import TemplateError

from specbench_api.plan.canonical import canonical_json
from specbench_api.spec.chat_template import ChatTemplate
from specbench_api.spec.target import Target
from specbench_client.errors import BadInput
from specbench_client.workload.chat_template.applied import AppliedTemplate
from specbench_client.workload.chat_template.channels import markers_among
from specbench_client.workload.chat_template.environment import names_asked
from specbench_client.workload.chat_template.places import INSTEAD, Place, place_of, read_file
from specbench_client.workload.chat_template.settings import Settings, completed, read_settings
from specbench_client.workload.chat_template.tokens import contradicted, special_in
from specbench_client.workload.places import Fetch

DEFAULT = "default"
TOOLS = "tool_use"
"""The template that transformers takes of several, by itself, for a conversation that is offered tools."""
_OTHERWISE = "set appliedBy: Engine, or save the tokenizer anew without it"
_OWN = "give a template of your own in chatTemplate.template, or set appliedBy: Engine"


@dataclass(frozen=True)
class _Held:
    """tokenizer_config.json, and whether prompts offer tools."""

    config: Mapping[str, Any]
    offered: Collection[bool]


def load_template(
    template: ChatTemplate,
    target: Target,
    base_dir: Path,
    fetch: Fetch | None = None,
    *,
    offered: Collection[bool] = (),
) -> AppliedTemplate:
    """Read everything, and find that it can be used. Blocks. Raises BadInput with what is missing, and the remedy.

    `offered`: whether prompts offer tools, once each.
    """
    offered = {bool(template.kwargs.get("tools")) or one for one in offered or (False,)}
    place = place_of(template, target, base_dir)
    tokenizer = read_file(place, "tokenizer.json", fetch)
    if tokenizer is None:
        raise BadInput(f"{place.field}: {place.address} has no tokenizer.json: {INSTEAD}")
    _object(tokenizer, f"{place.address}/tokenizer.json")
    settings = read_settings(lambda name: _object(read_file(place, name, fetch), f"{place.address}/{name}"))
    tokenizer = _completed(place, tokenizer, settings)
    source = _source(template, place, _Held(settings.config, offered), base_dir, fetch)
    _refuse_unknown(template, place, source, settings)
    applied = AppliedTemplate(
        tokenizer_json=tokenizer,
        source=source,
        variables=canonical_json(settings.variables | template.kwargs),
        today=template.today,
        special_markers=markers_among(special_in(tokenizer)),
        where=place.address,
    )
    applied.ready()
    return applied


def _source(template: ChatTemplate, place: Place, held: _Held, base_dir: Path, fetch: Fetch | None) -> str:
    if template.template is not None:
        return _own(template.template, base_dir, fetch)

    def read(name: str) -> str | None:
        data = read_file(place, name, fetch)
        return None if data is None else _text(data, f"{place.address}/{name}")

    config = held.config
    for_tools = (
        (_beside(read, TOOLS) or _within(config, TOOLS)) if template.name is None and True in held.offered else None
    )
    if for_tools and False in held.offered:
        told = f"has one template for prompts with tools ({TOOLS}) and one for those without, and there are both"
        raise BadInput(f"{place.field}: {place.address} {told}: name one in chatTemplate.name, or part the workload")
    wanted = template.name or DEFAULT
    found = for_tools or _beside(read, wanted) or _within(config, wanted)
    if found is None:
        known = ", ".join(_names(config)) or "none"
        which = f"no chat template named {wanted!r} (found: {known})" if template.name else "no chat template"
        raise BadInput(f"{place.field}: {place.address} has {which}: {_OWN}")
    return found


def _beside(read: Callable[[str], str | None], name: str) -> str | None:
    """A file of its own comes before what tokenizer_config.json says, as transformers has it."""
    return read("chat_template.jinja") if name == DEFAULT else read(f"additional_chat_templates/{name}.jinja")


def _within(config: Mapping[str, Any], name: str) -> str | None:
    """One text, or a list of them by name."""
    told = config.get("chat_template")
    if isinstance(told, list):
        return next((str(one["template"]) for one in told if one.get("name") == name), None)
    return told if isinstance(told, str) and name == DEFAULT else None


def _names(config: Mapping[str, Any]) -> list[str]:
    told = config.get("chat_template")
    if isinstance(told, list):
        return [str(one.get("name")) for one in told]
    return [DEFAULT] if told else []


def _own(text: str, base_dir: Path, fetch: Fetch | None) -> str:
    if text.startswith("s3://"):
        if fetch is None:
            raise BadInput(f"chatTemplate.template: {text}: S3 is not at hand here: give a local file")
        return _text(fetch(text), text)
    path = base_dir / Path(text).expanduser()
    try:
        return _text(path.read_bytes(), str(path))
    except OSError as error:
        raise BadInput(f"chatTemplate.template: {path}: {error.strerror}: give a Jinja file") from error


def _completed(place: Place, tokenizer: bytes, settings: Settings) -> bytes:
    if settings.config.get("split_special_tokens"):
        told = "its split_special_tokens makes plain text of the template's special tokens"
        raise BadInput(f"{place.field}: {place.address}: {told}: {_OTHERWISE}")
    try:
        made = completed(tokenizer, settings)
    except BadInput:
        raise
    except Exception as error:  # the library raises bare Exception for whatever it cannot read
        raise BadInput(f"{place.address}: its tokenizer.json cannot be read: {error}") from error
    strange = contradicted(made, settings.added)
    if strange:
        told = f"tokenizer.json and the files beside it give {strange[0]!r} another id"
        raise BadInput(f"{place.field}: {place.address}: {told}: save the tokenizer anew with transformers")
    return made


def _refuse_unknown(template: ChatTemplate, place: Place, source: str, settings: Settings) -> None:
    """A special token that nobody tells would be an empty text, and the prompt another one than the engines'."""
    try:
        asked = names_asked(source)
    except TemplateError:
        return  # whoever compiles it says what is wrong
    unknown = sorted(settings.unknown & asked - template.kwargs.keys())
    if unknown:
        told = f"the template asks for {unknown[0]}, which tokenizer_config.json does not tell"
        remedy = f"set it in chatTemplate.kwargs ({unknown[0]}: its text, or an empty one where the model has none)"
        raise BadInput(f"{place.field}: {place.address}: {told}: {remedy}")


def _object(data: bytes | None, where: str) -> Mapping[str, Any]:
    """What is not there says nothing."""
    if data is None:
        return {}
    try:
        found = json.loads(data)
    except ValueError as error:
        raise BadInput(f"{where}: is no JSON: {error}") from error
    if not isinstance(found, dict):
        raise BadInput(f"{where}: is no JSON object")
    return found


def _text(data: bytes, where: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise BadInput(f"{where}: not UTF-8: save it as UTF-8") from error
