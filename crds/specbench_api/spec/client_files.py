"""The files that a spec names and a client Job reads: which paths it would refuse. Pure.

A client resolves symbolic links and then refuses every file that is not below one of its folders, but only after an
engine has been started for it. The operator refuses a path that leads out of them before it creates a child.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from pathlib import PurePosixPath

from specbench_api.errors import Problem
from specbench_api.spec.dataset import IMAGE_DATA_FOLDER, PVC_FOLDER, Dataset
from specbench_api.spec.patterns import leads_out
from specbench_api.spec.run import RunSpec

CLIENT_FOLDERS = (PVC_FOLDER, IMAGE_DATA_FOLDER)
"""The folders below which client Jobs read files."""
_WORKING_FOLDER = "/tmp"  # noqa: S108 - not written to; relative paths of client Jobs start at the image's WORKDIR


def unreadable_files(spec: RunSpec) -> list[Problem]:
    """Return a problem for every path, absolute or with a `..` component, that a client Job must not read.

    Other relative paths are left to the client.
    """
    folders = ", ".join(CLIENT_FOLDERS)
    remedy = "put the file on a volume (dataset.pvc), or give s3://BUCKET/KEY"
    return [
        Problem(field, f"{path} is not below a folder that clients may read ({folders})", remedy)
        for field, path in _paths(spec)
        if "://" not in path and (path.startswith(("/", "~")) or leads_out(path)) and not _is_below(path)
    ]


def _paths(spec: RunSpec) -> Iterator[tuple[str, str]]:
    """Yield the field and value of each path that the client of a run reads."""
    for index, workload in enumerate(spec.workloads):
        base = f"spec.workloads[{index}]"
        yield from _of_dataset(f"{base}.dataset", workload.dataset)
        if (template := workload.client_template) is None:
            continue
        if template.template is not None:
            yield f"{base}.chatTemplate.template", template.template
        if template.tokenizer is not None:
            yield f"{base}.chatTemplate.tokenizer", template.tokenizer
        elif spec.model.tokenizer is not None:
            yield "spec.model.tokenizer", spec.model.tokenizer
        elif spec.model.path is not None:
            yield "spec.model.path", spec.model.path
    if spec.load.arrival is not None and spec.load.arrival.uri is not None:
        yield "spec.load.arrival.uri", spec.load.arrival.uri


def _of_dataset(field: str, dataset: Dataset) -> Iterator[tuple[str, str]]:
    if dataset.uri is not None:
        yield f"{field}.uri", dataset.uri
    for index, member in enumerate(dataset.members or []):
        if member.uri is not None:
            yield f"{field}.members[{index}].uri", member.uri


def _is_below(path: str) -> bool:
    resolved = PurePosixPath(posixpath.normpath(posixpath.join(_WORKING_FOLDER, path)))
    return not path.startswith("~") and any(resolved.is_relative_to(folder) for folder in CLIENT_FOLDERS)
