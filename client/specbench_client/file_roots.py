"""The folders below which a client Job reads the files that a spec names.

Whoever writes a spec must not read other files of the pod: `/proc/self/environ` has the S3 keys, and the contents of a
file are sent to the engine. On a person's own machine there is no limit.

A path is checked before it is opened. So this does not protect against somebody who can write to a mounted volume and
replaces a file with a link between the two.
"""

from __future__ import annotations

import difflib
import os
import stat
from pathlib import Path

from specbench_api.spec.dataset import FILE_ROOTS_VARIABLE
from specbench_client.errors import BadInput


def similar_file(path: Path, base_dir: Path) -> str:
    """Return ` Did you mean PATH?` with the most similar name of a file beside the path; empty if there is none."""
    try:
        names = [entry.name for entry in os.scandir((base_dir / path).parent) if entry.is_file()]
    except OSError:  # the folder does not exist, or may not be read
        return ""
    near = difflib.get_close_matches(path.name, names, n=1)
    return f" Did you mean {path.with_name(near[0])}?" if near else ""


def file_roots() -> tuple[Path, ...] | None:
    """Return the folders that the operator allows; None: this is not a client Job, and every file may be read."""
    text = os.environ.get(FILE_ROOTS_VARIABLE)
    return None if text is None else tuple(Path(one) for one in text.split(":") if one)


def readable_path(path: Path, field: str) -> Path:
    """Return the path of a file or folder that a field of the spec names, with symbolic links resolved.

    The path need not exist. Raises BadInput if it is invalid, is not below one of the roots, or is neither a file nor a
    folder. Without roots it is returned unchanged.
    """
    roots = file_roots()
    if "\0" in str(path):
        raise BadInput(f"{field}: {str(path)!r} contains a null character: give the path of a file")
    if roots is None:
        return path
    try:
        resolved = path.resolve()
        is_below = any(resolved.is_relative_to(root.resolve()) for root in roots)
        mode = resolved.stat().st_mode if is_below and resolved.exists() else stat.S_IFREG
    except (OSError, RuntimeError) as error:  # RuntimeError: a loop of symbolic links
        raise BadInput(f"{field}: {path}: {error}: give the path of a file") from error
    if not is_below:
        allowed = ", ".join(str(root) for root in roots) or "no folder"
        remedy = "put it on a volume (dataset.pvc), or give s3://BUCKET/KEY"
        raise BadInput(f"{field}: {path} is not below a folder that clients may read ({allowed}): {remedy}")
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise BadInput(f"{field}: {path} is neither a file nor a folder: give the path of a file")
    return resolved
