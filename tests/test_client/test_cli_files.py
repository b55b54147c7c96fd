"""Files named on the command line are written completely or not at all; links and devices are kept."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from specbench_client.cli.output import write_output_file
from specbench_client.errors import BadInput

SIZE_LIMIT = 1000


@contextmanager
def limited_file_size() -> Iterator[None]:
    """Limit every file to SIZE_LIMIT bytes, as on a full disk.

    Keep the block short: the limit applies to pytest's own files too.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (SIZE_LIMIT, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("before", [None, b"of last night"])
def test_full_disk_keeps_the_old_content_and_leaves_no_partial_file(tmp_path: Path, before: bytes | None) -> None:
    file = tmp_path / "report.html"
    if before is not None:
        file.write_bytes(before)
    with pytest.raises(BadInput) as caught, limited_file_size():
        write_output_file("--to", file, b"x" * (SIZE_LIMIT + 1))
    assert str(caught.value) == f"--to {file}: File too large: make room, or give a file elsewhere"
    assert {each.name: each.read_bytes() for each in tmp_path.iterdir()} == (
        {} if before is None else {file.name: before}
    )


def test_replaced_file_keeps_its_mode_and_a_new_one_has_the_default_mode(tmp_path: Path) -> None:
    kept, new = tmp_path / "kept", tmp_path / "new"
    kept.write_bytes(b"old")
    kept.chmod(0o640)
    (tmp_path / "usual").touch()
    for file in (kept, new):
        write_output_file("--to", file, b"data")
        assert file.read_bytes() == b"data"
    assert kept.stat().st_mode & 0o777 == 0o640
    assert new.stat().st_mode == (tmp_path / "usual").stat().st_mode


def test_links_and_devices_are_written_in_place(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    link.symlink_to(target)
    write_output_file("--to", link, b"data")
    assert (link.is_symlink(), target.read_bytes()) == (True, b"data")
    write_output_file("--to", Path("/dev/null"), b"data")
    assert Path("/dev/null").is_char_device()


def test_file_that_cannot_be_replaced_is_written_in_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This occurs for a single file mounted into a container."""
    file = tmp_path / "mounted"
    file.write_bytes(b"old")

    def busy(*_: object) -> None:
        raise OSError(16, "Device or resource busy")

    monkeypatch.setattr(Path, "replace", busy)
    write_output_file("--to", file, b"data")
    assert [(each.name, each.read_bytes()) for each in tmp_path.iterdir()] == [("mounted", b"data")]


def test_missing_folder_is_reported_with_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="No such file or directory: give a file in a folder that exists"):
        write_output_file("--plot", tmp_path / "none/x.html", b"")
