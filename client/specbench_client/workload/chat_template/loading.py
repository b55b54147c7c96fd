"""Loads the chat template that a spec declares: its text, its tokenizer, and its variables."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from typing import Any

from jinja2 import TemplateError

from specbench_api.plan.canonical import canonical_json
from specbench_api.spec.chat_template import ChatTemplate
from specbench_api.spec.dataset import PVC_FOLDER
from specbench_api.spec.model import PvcModel, Target
from specbench_client.bounded_json import parse_json
from specbench_client.errors import BadInput
from specbench_client.file_roots import readable_path
from specbench_client.store.locations import read_object
from specbench_client.workload.chat_template.reasoning import markers_among
from specbench_client.workload.chat_template.template import AppliedTemplate, required_variables
from specbench_client.workload.chat_template.tokenizer import (
    TokenizerSettings,
    complete_tokenizer,
    conflicting_tokens,
    read_settings,
    special_tokens_in,
)
from specbench_client.workload.locations import SCHEME, hub_file

_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+(@[\w./-]+)?")
_S3 = "s3://"
_MISSING = ("EntryNotFoundError", "RemoteEntryNotFoundError")
"""The hub library's errors for a file that is not in the repository. (Its LocalEntryNotFoundError means something else:
the hub could not be reached and the file is not cached.)"""
INSTEAD = "set chatTemplate.tokenizer to a folder with tokenizer.json, s3://BUCKET/FOLDER/, or OWNER/NAME on the hub"


class TokenizerStorage(Enum):
    """Kinds of storage that a tokenizer's files are read from."""

    FOLDER = auto()
    S3 = auto()
    HUB = auto()


@dataclass(frozen=True)
class TokenizerLocation:
    """The folder of a tokenizer. `address` has no trailing slash; `field` is the field of the spec that names it."""

    kind: TokenizerStorage
    address: str
    field: str


def tokenizer_location(template: ChatTemplate, target: Target, base_dir: Path) -> TokenizerLocation:
    """Locate the tokenizer: chatTemplate.tokenizer, else the model's tokenizer, else the model. Raises BadInput."""
    if template.tokenizer is not None:
        return _named(template.tokenizer, "chatTemplate.tokenizer", target, base_dir)
    if target.tokenizer is not None:
        return _named(target.tokenizer, "spec.model.tokenizer", target, base_dir)
    if target.path is not None:
        return _folder(target.path, "spec.model.path", base_dir)
    if target.pvc is not None:
        return _mounted(target.pvc)
    if target.uri is not None:
        return _named(target.uri, "spec.model.uri", target, base_dir)
    return TokenizerLocation(TokenizerStorage.HUB, f"{target.name}@{target.revision}", "spec.model.name")


def read_file(place: TokenizerLocation, name: str) -> bytes | None:
    """Read one of the tokenizer's files; None if there is no such file. Blocks. Raises BadInput, NotDurable."""
    if place.kind is TokenizerStorage.FOLDER:
        return _read(readable_path(Path(place.address) / name, place.field))
    if place.kind is TokenizerStorage.HUB:
        return _of_hub(f"{SCHEME}{place.address}/{name}", place.field)
    try:
        return read_object(f"{place.address}/{name}")
    except BadInput:
        return None


def _named(text: str, field: str, target: Target, base_dir: Path) -> TokenizerLocation:
    if text.startswith(_S3):
        return TokenizerLocation(TokenizerStorage.S3, text.rstrip("/"), field)
    if "://" in text and not text.startswith(SCHEME):
        raise BadInput(f"{field}: {text}: a tokenizer cannot be read from this address: {INSTEAD}")
    name = text.removeprefix(SCHEME).rstrip("/")
    is_path = text.startswith(("/", ".", "~")) or (base_dir / text).exists()
    if text.startswith(SCHEME) or (not is_path and _HUB_NAME.fullmatch(name)):
        revision = "" if "@" in name else f"@{target.revision if name == target.name else 'main'}"
        return TokenizerLocation(TokenizerStorage.HUB, f"{name}{revision}", field)
    return _folder(text, field, base_dir)


def _folder(text: str, field: str, base_dir: Path) -> TokenizerLocation:
    path = base_dir / Path(text).expanduser()
    if path.suffix.lower() == ".gguf":
        raise BadInput(f"{field}: {path}: the tokenizer inside a GGUF file is not supported: {INSTEAD}")
    return TokenizerLocation(
        TokenizerStorage.FOLDER, str(path.parent if path.name == "tokenizer.json" else path), field
    )


def _mounted(pvc: PvcModel) -> TokenizerLocation:
    """Locate the model on its volume. Only a volume that also holds datasets is mounted in a client's pod."""
    volume = Path(PVC_FOLDER) / pvc.claim_name
    if not volume.is_dir():
        raise BadInput(f"spec.model.pvc: the volume {pvc.claim_name} is not mounted at {volume}: {INSTEAD}")
    return TokenizerLocation(
        TokenizerStorage.FOLDER, str(volume / (pvc.sub_path or "") / pvc.path.lstrip("/")), "spec.model.pvc"
    )


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror or error}") from error


def _of_hub(uri: str, field: str) -> bytes | None:
    """Read a file from the hub; None if the repository does not contain it. Raises BadInput for any other failure."""
    try:
        return hub_file(uri).read_bytes()
    except BadInput as error:
        missing = error.__cause__ and error.__cause__.__cause__
        if type(missing).__name__ in _MISSING:
            return None
        reason = str(error.__cause__ or error).strip().partition("\n")[0]
        is_gated = "gated" in reason.lower()
        remedy = "accept its terms on its hub page and set HF_TOKEN" if is_gated else "check that the hub is reachable"
        raise BadInput(f"{field}: {uri} could not be read: {reason}: {remedy}, or {INSTEAD}") from error


DEFAULT = "default"
TOOLS = "tool_use"
"""Name of the template that transformers chooses for a conversation with tools, if there are several."""
_OTHERWISE = "set chatTemplate.appliedBy: Engine, or save the tokenizer again without it"
_OWN = "set chatTemplate.template to a template of your own, or set chatTemplate.appliedBy: Engine"


def load_template(
    template: ChatTemplate,
    target: Target,
    base_dir: Path,
    *,
    offered: Collection[bool] = (),
) -> AppliedTemplate:
    """Load a template with its tokenizer and check that both are usable. Blocks. Raises BadInput with a remedy.

    `offered`: the distinct values of whether a prompt offers tools.
    """
    offered = {bool(template.kwargs.get("tools")) or one for one in offered or (False,)}
    place = tokenizer_location(template, target, base_dir)
    tokenizer = read_file(place, "tokenizer.json")
    if tokenizer is None:
        raise BadInput(f"{place.field}: {place.address} has no tokenizer.json: {INSTEAD}")
    _object(tokenizer, f"{place.address}/tokenizer.json")
    settings = read_settings(lambda name: _object(read_file(place, name), f"{place.address}/{name}"))
    tokenizer = _complete(place, tokenizer, settings)
    source = _source(template, place, settings.config, offered, base_dir=base_dir)
    _raise_if_unknown(template, place, source, settings)
    applied = AppliedTemplate(
        tokenizer_json=tokenizer,
        source=source,
        variables=canonical_json(settings.variables | template.kwargs),
        today=template.today,
        special_markers=markers_among(special_tokens_in(tokenizer)),
        where=place.address,
    )
    applied.prepare()
    return applied


def _source(
    template: ChatTemplate,
    place: TokenizerLocation,
    config: Mapping[str, Any],
    offered: Collection[bool],
    *,
    base_dir: Path,
) -> str:
    """Return the template's text. `config`: the content of tokenizer_config.json. `offered`: see `load_template`."""
    if template.template is not None:
        return _read_template(template.template, base_dir)

    def read(name: str) -> str | None:
        data = read_file(place, name)
        return None if data is None else _text(data, f"{place.address}/{name}")

    for_tools = (
        (_template_file(read, TOOLS) or _config_template(config, TOOLS))
        if template.name is None and True in offered
        else None
    )
    if for_tools and False in offered:
        problem = f"has separate templates for prompts with tools ({TOOLS}) and without, and the workload has both"
        remedy = "set chatTemplate.name to one of them, or split the workload"
        raise BadInput(f"{place.field}: {place.address} {problem}: {remedy}")
    name = template.name or DEFAULT
    found = for_tools or _template_file(read, name) or _config_template(config, name)
    if found is None:
        known = ", ".join(_names(config)) or "none"
        which = f"no chat template named {name!r} (found: {known})" if template.name else "no chat template"
        raise BadInput(f"{place.field}: {place.address} has {which}: {_OWN}")
    return found


def _template_file(read: Callable[[str], str | None], name: str) -> str | None:
    """Read the template from its own file, which takes precedence over tokenizer_config.json as in transformers."""
    return read("chat_template.jinja") if name == DEFAULT else read(f"additional_chat_templates/{name}.jinja")


def _config_template(config: Mapping[str, Any], name: str) -> str | None:
    """Return the template in tokenizer_config.json, which contains one string or a list of named templates."""
    templates = config.get("chat_template")
    if isinstance(templates, list):
        return next((str(one["template"]) for one in templates if one.get("name") == name), None)
    return templates if isinstance(templates, str) and name == DEFAULT else None


def _names(config: Mapping[str, Any]) -> list[str]:
    templates: Any = config.get("chat_template")
    if isinstance(templates, list):
        return [str(one.get("name")) for one in templates]
    return [DEFAULT] if templates else []


def _read_template(text: str, base_dir: Path) -> str:
    if text.startswith("s3://"):
        return _text(read_object(text), text)
    path = readable_path(base_dir / Path(text).expanduser(), "chatTemplate.template")
    try:
        return _text(path.read_bytes(), str(path))
    except OSError as error:
        raise BadInput(f"chatTemplate.template: {path}: {error.strerror}: give a Jinja file") from error


def _complete(place: TokenizerLocation, tokenizer: bytes, settings: TokenizerSettings) -> bytes:
    if settings.config.get("split_special_tokens"):
        problem = "split_special_tokens in tokenizer_config.json turns the template's special tokens into plain text"
        raise BadInput(f"{place.field}: {place.address}: {problem}: {_OTHERWISE}")
    try:
        completed = complete_tokenizer(tokenizer, settings)
    except BadInput:
        raise
    except Exception as error:  # the library raises a bare Exception for any invalid file
        raise BadInput(f"{place.address}: its tokenizer.json cannot be read: {error}") from error
    conflicts = conflicting_tokens(completed, settings.added)
    if conflicts:
        problem = f"tokenizer.json and the other tokenizer files disagree about the id of {conflicts[0]!r}"
        raise BadInput(f"{place.field}: {place.address}: {problem}: save the tokenizer again with transformers")
    return completed


def _raise_if_unknown(
    template: ChatTemplate, place: TokenizerLocation, source: str, settings: TokenizerSettings
) -> None:
    """Raise BadInput for an undefined special token: it would be rendered empty, unlike in the engines."""
    try:
        required = required_variables(source)
    except TemplateError:
        return  # compiling the template reports the error
    unknown = sorted(settings.unknown & required - template.kwargs.keys())
    if unknown:
        problem = f"the template uses {unknown[0]}, which tokenizer_config.json does not define"
        remedy = f'set {unknown[0]} in chatTemplate.kwargs to its text, or to "" if the model has none'
        raise BadInput(f"{place.field}: {place.address}: {problem}: {remedy}")


def _object(data: bytes | None, where: str) -> Mapping[str, Any]:
    """Parse a JSON object; a missing file counts as an empty one. Raises BadInput."""
    if data is None:
        return {}
    try:
        found = parse_json(data)
    except ValueError as error:
        raise BadInput(f"{where}: is not valid JSON: {error}") from error
    if not isinstance(found, dict):
        raise BadInput(f"{where}: is not a JSON object")
    return found


def _text(data: bytes, where: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise BadInput(f"{where}: not UTF-8: save it as UTF-8") from error
