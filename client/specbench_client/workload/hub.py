"""The Hugging Face hub, through the `datasets` library: a source's own rows, or one file of a repository.

The hub's caches are the library's own; nothing of them is trusted more than the hub is: what was read is told by the
fingerprint of the prompts. A pod without a way to the internet gets a clear refusal, and gives a file instead.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from specbench_api.spec.dataset import Selection
from specbench_client.errors import BadInput
from specbench_client.workload.rows import Row, quiet, read_rows
from specbench_client.workload.sources.source import Hub, Loader

SCHEME = "hf://"
RETRIES = 1


def hub_rows(selection: Selection, loader: Loader) -> list[Row]:
    """All rows that the hub has of this source. Blocks. Raises BadInput where it cannot be asked."""
    assert loader.hub is not None
    hub = loader.hub(selection.form)
    revision = selection.revision or hub.revision
    if hub.file is not None:
        at = f"@{revision}" if revision else ""
        return read_rows(hub_file(f"{SCHEME}datasets/{hub.name}{at}/{hub.file}"), selection.source)
    return load_split(hub, revision, gated=loader.gated)


def load_split(hub: Hub, revision: str | None, *, gated: bool = False) -> list[Row]:
    """The rows of a repository's split; `hub.name` may be a folder of the same layout. Raises BadInput."""
    import datasets  # noqa: PLC0415 -- two seconds, which `--help` and JSON Lines need not pay

    with quiet(), _explained(f"the hub's data set {hub.name}", gated=gated):
        config = datasets.DownloadConfig(max_retries=RETRIES)
        found = datasets.load_dataset(hub.name, hub.config, split=hub.split, revision=revision, download_config=config)
        return [Row(f"row {number}", dict(columns)) for number, columns in enumerate(found, start=1)]


def hub_file(uri: str) -> Path:
    """A local copy of hf://datasets/OWNER/NAME[@REVISION]/FILE. Raises BadInput."""
    import datasets  # noqa: PLC0415 -- see above

    with quiet(), _explained(uri, gated=False):
        manager = datasets.DownloadManager(download_config=datasets.DownloadConfig(max_retries=RETRIES))
        return Path(str(manager.download(uri)))


@contextmanager
def _explained(what: str, *, gated: bool) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # of three libraries (datasets, fsspec, httpx), without a common root
        raise BadInput(f"{what} could not be read: {_first_line(error)}: {_remedy(error, gated=gated)}") from error


def _remedy(error: BaseException, *, gated: bool) -> str:
    instead = "or give the file itself in dataset.uri (a path, or s3://BUCKET/KEY)"
    if gated or "gated" in str(error).lower():
        return f"it is gated: accept its terms on its page, set HF_TOKEN, {instead}"
    offline = " (HF_HUB_OFFLINE is set)" if os.environ.get("HF_HUB_OFFLINE") else ""
    return f"is the hub reachable from here{offline}, and is the name right? {instead}"


def _first_line(error: BaseException) -> Any:
    lines = str(error).strip().splitlines()
    return lines[0][:300] if lines else type(error).__name__
