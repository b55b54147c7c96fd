"""Where a tokenizer and its chat template lie: a folder, S3, or the hub; which one is meant, and one file of it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path

from specbench_api.spec.chat_template import ChatTemplate
from specbench_api.spec.dataset import PVC_FOLDER
from specbench_api.spec.target import PvcModel, Target
from specbench_client.errors import BadInput
from specbench_client.workload.hub import SCHEME, hub_file
from specbench_client.workload.places import Fetch

_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+(@[\w./-]+)?")
_S3 = "s3://"
_MISSING = ("EntryNotFoundError", "RemoteEntryNotFoundError")
"""What the hub's library says of a file that its repository lacks. It also has a LocalEntryNotFoundError: nobody could
be asked, and no file of that name was fetched before."""
INSTEAD = "set chatTemplate.tokenizer to a folder with tokenizer.json, s3://BUCKET/FOLDER/, or OWNER/NAME of the hub"


class Kind(Enum):
    """How files are read there."""

    FOLDER = auto()
    S3 = auto()
    HUB = auto()


@dataclass(frozen=True)
class Place:
    """A folder of a tokenizer. `address` ends without a slash; `field`: what of the spec named it."""

    kind: Kind
    address: str
    field: str


def place_of(template: ChatTemplate, target: Target, base_dir: Path) -> Place:
    """Which tokenizer is meant: the template's own word, the model's tokenizer, or the model. Raises BadInput."""
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
    return Place(Kind.HUB, f"{target.name}@{target.revision}", "spec.model.name")


def read_file(place: Place, name: str, fetch: Fetch | None) -> bytes | None:
    """One file of it; None where there is none of that name. Blocks. Raises BadInput, NotDurable."""
    if place.kind is Kind.FOLDER:
        return _read(Path(place.address) / name)
    if place.kind is Kind.HUB:
        return _of_hub(f"{SCHEME}{place.address}/{name}", place.field)
    if fetch is None:
        raise BadInput(f"{place.field}: {place.address}: S3 is not at hand here: give a folder")
    try:
        return fetch(f"{place.address}/{name}")
    except BadInput:
        return None


def _named(text: str, field: str, target: Target, base_dir: Path) -> Place:
    if text.startswith(_S3):
        return Place(Kind.S3, text.rstrip("/"), field)
    if "://" in text and not text.startswith(SCHEME):
        raise BadInput(f"{field}: {text}: no tokenizer is read from there: {INSTEAD}")
    name = text.removeprefix(SCHEME).rstrip("/")
    is_path = text.startswith(("/", ".", "~")) or (base_dir / text).exists()
    if text.startswith(SCHEME) or (not is_path and _HUB_NAME.fullmatch(name)):
        at = "" if "@" in name else f"@{target.revision if name == target.name else 'main'}"
        return Place(Kind.HUB, f"{name}{at}", field)
    return _folder(text, field, base_dir)


def _folder(text: str, field: str, base_dir: Path) -> Place:
    path = base_dir / Path(text).expanduser()
    if path.suffix.lower() == ".gguf":
        raise BadInput(f"{field}: {path}: a GGUF file holds its tokenizer in a form of its own: {INSTEAD}")
    return Place(Kind.FOLDER, str(path.parent if path.name == "tokenizer.json" else path), field)


def _mounted(pvc: PvcModel) -> Place:
    """A client's pod has the volumes of datasets, and the model's where it is one of them."""
    volume = Path(PVC_FOLDER) / pvc.claim_name
    if not volume.is_dir():
        raise BadInput(f"spec.model.pvc: the volume {pvc.claim_name} is not mounted at {volume} here: {INSTEAD}")
    return Place(Kind.FOLDER, str(volume / (pvc.sub_path or "") / pvc.path.lstrip("/")), "spec.model.pvc")


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror or error}") from error


def _of_hub(uri: str, field: str) -> bytes | None:
    """A repository that is there and lacks the file is no error; one that cannot be asked, or is gated, is."""
    try:
        return hub_file(uri).read_bytes()
    except BadInput as error:
        missing = error.__cause__ and error.__cause__.__cause__
        if type(missing).__name__ in _MISSING:
            return None
        said = str(error.__cause__ or error).strip().partition("\n")[0]
        is_gated = "gated" in said.lower()
        todo = "accept its terms on its page and set HF_TOKEN." if is_gated else "is the hub reachable from here?"
        raise BadInput(f"{field}: {uri} could not be read: {said}: {todo} Or {INSTEAD}") from error
