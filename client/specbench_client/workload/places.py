"""Where a file of prompts lies: on this machine, in S3, or on the hub; and which file of a folder is meant."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from specbench_api.spec.dataset import PVC_FOLDER, PvcFile, Selection
from specbench_client.errors import BadInput
from specbench_client.store.scratch import scratch_folder
from specbench_client.workload.hub import SCHEME, hub_file, hub_rows
from specbench_client.workload.rows import Row, read_rows
from specbench_client.workload.sources.table import LOADERS

Fetch = Callable[[str], bytes]
"""The object at an s3:// URI; BadInput where there is none."""


def rows_of(selection: Selection, base_dir: Path, fetch: Fetch | None) -> list[Row]:
    """All rows of the file that is meant. Blocks. Raises BadInput."""
    uri = selection.uri
    if selection.pvc is not None:
        return _mounted(selection.pvc, selection)
    if uri is None:
        return hub_rows(selection, LOADERS[selection.source])
    if uri.startswith("s3://"):
        return _fetched(uri, selection, fetch)
    if uri.startswith(SCHEME):
        return _from_hub(uri, selection)
    if "://" in uri:
        remedy = "download the file first"
        raise BadInput(
            f"{uri}: prompts are read from a path, s3://BUCKET/KEY or hf://datasets/OWNER/NAME/FILE: {remedy}"
        )
    return read_rows(_in_folder(base_dir / Path(uri).expanduser(), selection), selection.source)


def _mounted(pvc: PvcFile, selection: Selection) -> list[Row]:
    if not (Path(PVC_FOLDER) / pvc.claim_name).is_dir():
        remedy = "a volume is there in a client's pod alone; on this machine give uri, a path"
        raise BadInput(f"the volume {pvc.claim_name} is not mounted at {PVC_FOLDER} here: {remedy}")
    return read_rows(_in_folder(Path(pvc.mounted), selection), selection.source)


def _in_folder(path: Path, selection: Selection) -> Path:
    """The file itself; of a folder, the one that its publisher's tools write there."""
    names = _names(selection)
    if not names or not path.is_dir():
        return path
    found = next((path / name for name in names if (path / name).is_file()), None)
    if found is None:
        raise BadInput(f"{path}: holds none of {', '.join(names)}: prepare it, or name the file itself")
    return found


def _names(selection: Selection) -> tuple[str, ...]:
    files = LOADERS[selection.source].files
    return files(selection.form) if files else ()


def _fetched(uri: str, selection: Selection, fetch: Fetch | None) -> list[Row]:
    if fetch is None:
        raise BadInput(f"{uri}: S3 is not at hand here: give a local file")
    names = _names(selection) if uri.endswith("/") else ()
    refused: BadInput | None = None
    for each in [f"{uri}{name}" for name in names] or [uri]:
        try:
            data = fetch(each)
        except BadInput as error:
            refused = refused or error
            continue
        with scratch_folder() as folder:
            path = folder / each.rpartition("/")[2]
            path.write_bytes(data)
            return _told_as(each, path, selection)
    raise refused or BadInput(f"{uri}: names no object")


def _from_hub(uri: str, selection: Selection) -> list[Row]:
    """The hub's cache gives its files names without an ending, by which shapes are told: this one is lent its own."""
    with scratch_folder() as folder:
        named = folder / uri.rpartition("/")[2]
        named.symlink_to(hub_file(uri))
        return _told_as(uri, named, selection)


def _told_as(uri: str, path: Path, selection: Selection) -> list[Row]:
    """Read a copy; a fault is told by the name that the user knows."""
    try:
        return read_rows(path, selection.source)
    except BadInput as error:
        raise BadInput(str(error).replace(str(path), uri)) from error
