"""The files that a plan's datasets name, and whether they are on this machine, without reading them."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable
from pathlib import Path

from specbench_api.plan.plan import Plan
from specbench_api.spec.dataset import GENERATED_SOURCES, IMAGE_DATA_FOLDER, Dataset
from specbench_client.errors import BadInput

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


def reject_missing_prompts(plan: Plan, base_dir: Path) -> None:
    """Raise BadInput(DatasetMissing) if a file of prompts is not on this machine."""
    _raise_missing(missing_prompt_files(plan, base_dir))


def reject_prompts_missing_everywhere(plans: Iterable[Plan], base_dir: Path) -> None:
    """Raise BadInput(DatasetMissing) for files that are missing here and would not be in the client's image either."""
    lines = [line for plan in plans for line in missing_prompt_files(plan, base_dir, below_image=False)]
    _raise_missing([f"{line} {ON_A_CLUSTER}" for line in lines])


def _raise_missing(lines: Iterable[str]) -> None:
    """Raise BadInput(DatasetMissing) with these lines without repetitions, if there are any."""
    if message := "\n".join(dict.fromkeys(lines)):
        raise BadInput(message, DATASET_MISSING)


def _remedy(uri: str, base_dir: Path) -> str:
    near = _nearest(_path(uri, base_dir))
    hint = f" Did you mean {Path(uri).with_name(near)}?" if near else ""
    return hint if _given_path(uri).is_absolute() else f"{hint} Relative paths are relative to the spec's folder."


def _nearest(path: Path) -> str:
    """Return the most similar name of a file beside this path; empty if there is none, or the folder is unreadable."""
    try:
        names = [entry.name for entry in os.scandir(path.parent) if entry.is_file()]
    except OSError:
        return ""
    return next(iter(difflib.get_close_matches(path.name, names, n=1)), "")


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
