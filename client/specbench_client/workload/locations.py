"""Finds and reads the files of datasets: on this machine, on a mounted volume, in S3, or on the Hugging Face hub.

Whether a plan's files are on this machine is known without reading them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from specbench_api.plan.plan import Plan
from specbench_api.spec.dataset import GENERATED_SOURCES, IMAGE_DATA_FOLDER, PVC_FOLDER, Dataset, PvcFile, Selection
from specbench_client.errors import BadInput
from specbench_client.file_roots import readable_path, similar_file
from specbench_client.store.locations import read_object
from specbench_client.workload.prompt_files import PromptRow, quiet_datasets_library, read_rows
from specbench_client.workload.sources.loader import CONFIG, HubDataset, SourceLoader
from specbench_client.workload.sources.registry import LOADERS

REMOTE_SCHEMES = ("s3://", "hf://")
DATASET_MISSING = "DatasetMissing"
"""Reason if a file of prompts does not exist."""
ON_A_CLUSTER = f"For a cluster, give a path below {IMAGE_DATA_FOLDER}, dataset.pvc or s3://BUCKET/KEY."


def dataset_uris(dataset: Dataset) -> list[tuple[str, str]]:
    """Return (field, URI) of every file that a dataset names. Hub and generated sources have none."""
    rows = [(f"members[{row}].uri", member.uri) for row, member in enumerate(dataset.members or [])]
    return [(field, uri) for field, uri in [("uri", dataset.uri), *rows] if uri is not None]


def is_local(dataset: Dataset, base_dir: Path) -> bool:
    """Return whether the whole dataset is on this machine, so that planning can read it without S3 or the hub."""
    parts = [dataset] if dataset.members is None else dataset.members
    named = all(part.uri is not None or part.source in GENERATED_SOURCES for part in parts)
    return named and all(
        not uri.startswith(REMOTE_SCHEMES) and _exists(uri, base_dir) for _, uri in dataset_uris(dataset)
    )


def missing_prompt_files(plan: Plan, base_dir: Path, *, below_image: bool = True) -> list[str]:
    """Return a line for each missing file of prompts. `below_image`: whether to include those in the client's image."""
    return [
        f"spec.workloads[{row}].dataset.{field}: {_path(uri, base_dir)} does not exist.{_remedy(uri, base_dir)}"
        for row, workload in enumerate(plan.workloads)
        for field, uri in dataset_uris(workload.dataset)
        if not _exists(uri, base_dir) and (below_image or not _is_in_image(uri, base_dir))
    ]


def reject_prompts_missing_everywhere(plans: Iterable[Plan], base_dir: Path) -> None:
    """Raise BadInput(DatasetMissing) for files that are missing here and would not be in the client's image either."""
    lines = [line for plan in plans for line in missing_prompt_files(plan, base_dir, below_image=False)]
    reject_missing([f"{line} {ON_A_CLUSTER}" for line in lines])


def reject_missing(lines: Iterable[str]) -> None:
    """Raise BadInput(DatasetMissing) with these lines without repetitions, if there are any."""
    if message := "\n".join(dict.fromkeys(lines)):
        raise BadInput(message, DATASET_MISSING)


def _remedy(uri: str, base_dir: Path) -> str:
    hint = similar_file(_given_path(uri), base_dir)
    return hint if _given_path(uri).is_absolute() else f"{hint} Relative paths are relative to the spec's folder."


def _exists(uri: str, base_dir: Path) -> bool:
    """Return whether the file exists; True for URIs, which only the loader can check."""
    return "://" in uri or _path(uri, base_dir).exists()


def _is_in_image(uri: str, base_dir: Path) -> bool:
    normal = os.path.normpath(_path(uri, base_dir))  # `..` may lead out of the folder
    return Path(normal).is_relative_to(IMAGE_DATA_FOLDER)


def _path(uri: str, base_dir: Path) -> Path:
    return base_dir / _given_path(uri)


def _given_path(uri: str) -> Path:
    return Path(uri).expanduser()


# The hub's files are cached by the `datasets` library. A stale cache is detected by the fingerprint of the prompts.
SCHEME = "hf://"
_CHAIN = "::"
_RETRIES = 1
_INSTEAD = "or set dataset.uri to the file itself (a path, or s3://BUCKET/KEY)"


def hub_rows(selection: Selection, loader: SourceLoader, faults: list[str] | None = None) -> list[PromptRow]:
    """Download and return all rows of this source. Blocks. Raises BadInput if the hub cannot be reached."""
    assert loader.hub is not None
    hub = loader.hub.of_config(selection.form)
    revision = selection.revision or hub.revision
    if hub.file is not None:
        suffix = f"@{revision}" if revision else ""
        file = hub_file(f"{SCHEME}datasets/{hub.name}{suffix}/{hub.file}")
        return read_rows(file, selection.source, faults=faults)
    return load_split(hub, revision, gated=loader.gated)


def load_split(
    hub: HubDataset, revision: str | None, *, gated: bool = False, instead: str = _INSTEAD
) -> list[PromptRow]:
    """Return the rows of a repository's split. `hub.name` may also be a local folder. Raises BadInput.

    `instead`: the remedy where the hub cannot be reached.
    """
    import datasets  # noqa: PLC0415 -- importing it takes two seconds; `--help` and JSON Lines do without

    with quiet_datasets_library(), _hub_errors(f"the hub's dataset {hub.name}", instead, gated=gated):
        config = datasets.DownloadConfig(max_retries=_RETRIES)
        found = datasets.load_dataset(hub.name, hub.config, split=hub.split, revision=revision, download_config=config)
        return [PromptRow(f"row {number}", dict(columns)) for number, columns in enumerate(found, start=1)]


def hub_file(uri: str) -> Path:
    """Download hf://datasets/OWNER/NAME[@REVISION]/FILE and return the path of the local copy. Raises BadInput."""
    if _CHAIN in uri:  # The library reads `hf://…::file://…` from the second address.
        raise BadInput(f"{uri}: contains {_CHAIN}: give hf://datasets/OWNER/NAME/FILE of one file")
    import datasets  # noqa: PLC0415 -- see above

    with quiet_datasets_library(), _hub_errors(uri, _INSTEAD, gated=False):
        manager = datasets.DownloadManager(download_config=datasets.DownloadConfig(max_retries=_RETRIES))
        return Path(str(manager.download(uri)))


@contextmanager
def _hub_errors(what: str, instead: str, *, gated: bool) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # datasets, fsspec and httpx have no common base class of errors
        raise BadInput(
            f"{what} could not be read: {_first_line(error)}: {_hub_remedy(error, instead, gated=gated)}"
        ) from error


def _hub_remedy(error: BaseException, instead: str, *, gated: bool) -> str:
    if gated or "gated" in str(error).lower():
        return f"it is gated: accept its terms on its hub page and set HF_TOKEN, {instead}"
    offline = " (HF_HUB_OFFLINE is set)" if os.environ.get("HF_HUB_OFFLINE") else ""
    return f"check that the hub is reachable{offline} and that the name is right, {instead}"


def _first_line(error: BaseException) -> Any:
    lines = str(error).strip().splitlines()
    return lines[0][:300] if lines else type(error).__name__


def rows_of_selection(
    selection: Selection, base_dir: Path, faults: list[str] | None = None, field: str = "dataset.uri"
) -> list[PromptRow]:
    """Read all rows of the file that `selection` names. Blocks. Raises BadInput.

    `faults`: as of `read_rows`. `field`: the name of the URI.
    """
    uri = selection.uri
    if selection.pvc is not None:
        return _mounted(selection.pvc, selection, faults)
    if uri is None:
        return hub_rows(selection, LOADERS[selection.source], faults)
    if uri.startswith("s3://"):
        return _from_s3(uri, selection, faults)
    if uri.startswith(SCHEME):
        return _from_hub(uri, selection, faults)
    if "://" in uri:
        remedy = "download the file first"
        raise BadInput(
            f"{uri}: {field} is read from a path, s3://BUCKET/KEY or hf://datasets/OWNER/NAME/FILE: {remedy}"
        )
    path = readable_path(base_dir / Path(uri).expanduser(), field)
    return read_rows(readable_path(_in_folder(path, selection), field), selection.source, faults=faults)


def _mounted(pvc: PvcFile, selection: Selection, faults: list[str] | None) -> list[PromptRow]:
    if not (Path(PVC_FOLDER) / pvc.claim_name).is_dir():
        remedy = "volumes are mounted only in the pods of a cluster; on this machine set uri to a path"
        raise BadInput(f"dataset.pvc: the volume {pvc.claim_name} is not mounted at {PVC_FOLDER}: {remedy}")
    path = readable_path(Path(pvc.mounted), "dataset.pvc")
    return read_rows(readable_path(_in_folder(path, selection), "dataset.pvc"), selection.source, faults=faults)


def _in_folder(path: Path, selection: Selection) -> Path:
    """Return `path`, or if it is a folder, the file in it that the publisher's tools write."""
    names = _file_names(selection)
    if not names or not path.is_dir():
        return path
    found = next((path / name for name in names if (path / name).is_file()), None)
    if found is None:
        raise BadInput(
            f"{path}: contains none of {', '.join(names)}: prepare the dataset first, or give the file's own path"
        )
    return found


def _file_names(selection: Selection) -> tuple[str, ...]:
    return tuple(name.replace(CONFIG, selection.form or "") for name in LOADERS[selection.source].files)


def _from_s3(uri: str, selection: Selection, faults: list[str] | None) -> list[PromptRow]:
    names = _file_names(selection) if uri.endswith("/") else ()
    first_error: BadInput | None = None
    for each in [f"{uri}{name}" for name in names] or [uri]:
        try:
            data = read_object(each)
        except BadInput as error:
            first_error = first_error or error
            continue
        with TemporaryDirectory(prefix="specbench-") as folder:
            path = Path(folder) / each.rpartition("/")[2]
            path.write_bytes(data)
            return _read_copy(each, path, selection, faults)
    raise first_error or BadInput(f"{uri}: names no object: give s3://BUCKET/KEY of one file")


def _from_hub(uri: str, selection: Selection, faults: list[str] | None) -> list[PromptRow]:
    """Read a file of the hub through a symlink with its original name: cached files have no extension to go by."""
    with TemporaryDirectory(prefix="specbench-") as folder:
        named = Path(folder) / uri.rpartition("/")[2]
        named.symlink_to(hub_file(uri))
        return _read_copy(uri, named, selection, faults)


def _read_copy(uri: str, path: Path, selection: Selection, faults: list[str] | None) -> list[PromptRow]:
    """Read a local copy of `uri`; errors name the URI instead of the temporary path."""
    try:
        return read_rows(path, selection.source, faults=faults)
    except BadInput as error:
        raise BadInput(str(error).replace(str(path), uri)) from error
