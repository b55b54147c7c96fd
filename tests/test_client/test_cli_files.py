"""Files named on the command line are written completely or not at all; links and devices are kept."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from specbench_client.cli.output import write_output_file
from specbench_client.errors import BadInput

ROOM = 1000


@contextmanager
def little_room() -> Iterator[None]:
    """No file may grow beyond ROOM bytes, as on a disk that is full from there on. For as short as can be: pytest's
    own files are files too."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (ROOM, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("before", [None, b"of last night"])
def test_a_full_disk_leaves_the_old_content_and_no_partial_file(tmp_path: Path, before: bytes | None) -> None:
    file = tmp_path / "report.html"
    if before is not None:
        file.write_bytes(before)
    with pytest.raises(BadInput) as refused, little_room():
        write_output_file("--to", file, b"x" * (ROOM + 1))
    assert str(refused.value) == f"--to {file}: File too large: make room, or give a file elsewhere"
    assert {each.name: each.read_bytes() for each in tmp_path.iterdir()} == (
        {} if before is None else {file.name: before}
    )


def test_a_replaced_file_keeps_its_mode_and_a_new_one_has_the_default_mode(tmp_path: Path) -> None:
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


def test_a_file_that_cannot_be_replaced_is_written_in_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a file that was mounted alone into a container."""
    file = tmp_path / "mounted"
    file.write_bytes(b"old")

    def busy(*_: object) -> None:
        raise OSError(16, "Device or resource busy")

    monkeypatch.setattr(Path, "replace", busy)
    write_output_file("--to", file, b"data")
    assert [(each.name, each.read_bytes()) for each in tmp_path.iterdir()] == [("mounted", b"data")]


def test_a_missing_folder_is_reported_with_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="No such file or directory: give a file in a folder that exists"):
        write_output_file("--plot", tmp_path / "none/x.html", b"")
