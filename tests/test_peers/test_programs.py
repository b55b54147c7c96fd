"""Third-party Go programs are built once each, atomically, and with a Go that is new enough."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from peers import go_program
from peers.go_program import GoProgram, cache_folder
from specbench_cluster.errors import BuildFailed, RequirementMissing

PINNED = GoProgram("tool", "module", "example.org/tool/cmd", 1)
PUBLISHED = GoProgram("tool", "example.org/tool", "cmd/tool", 1, "v1.2.3")
FAKE_BUILD = """while [ $# -gt 0 ]; do [ "$1" = -o ] && touch "$2"; shift; done"""
Go = Callable[..., Path]


@pytest.fixture
def fake_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Go:
    """Install a fake Go that logs its calls, and a module that requires Go 1.26.0. Returns the log file."""
    (tmp_path / "module").mkdir()
    (tmp_path / "module/go.mod").write_text("module example.org/ours\n\ngo 1.26.0\n")
    monkeypatch.setattr(go_program, "HERE", tmp_path)
    monkeypatch.setenv("SPECBENCH_PEERS_CACHE", str(tmp_path / "cache"))

    def install(version: str = "go version go1.26.8 linux/amd64", then: str = FAKE_BUILD) -> Path:
        call_log, bin_folder = tmp_path / "call_log", tmp_path / "bin"
        bin_folder.mkdir()
        (bin_folder / "go").write_text(
            f'#!/bin/sh\n[ "$1" = version ] && {{ {_print_version(version)}; }}\necho "$PWD $*" >> {call_log}\n{then}\n'
        )
        (bin_folder / "go").chmod(0o755)
        monkeypatch.setenv("PATH", f"{bin_folder}:{os.environ['PATH']}")
        return call_log

    return install


def _print_version(version: str) -> str:
    return f"echo '{version}'; exit" if version.startswith("go version") else f"echo '{version}' >&2; exit 1"


def test_a_program_is_built_once_in_its_module(fake_go: Go, tmp_path: Path) -> None:
    call_log, progress = fake_go(), list[str]()
    built = [PINNED.built(progress.append) for _ in range(2)]
    assert built == [PINNED.file] * 2
    assert PINNED.file.is_file()
    (call,) = call_log.read_text().splitlines()
    assert call.startswith(f"{tmp_path / 'module'} build ")
    assert call.endswith(" example.org/tool/cmd")
    assert progress == ["building tool (once; about 1 s on two cores)"]
    assert {path.name for path in cache_folder().iterdir()} == {"tool.lock", PINNED.file.parent.name}


def test_changes_to_go_files_of_the_module_change_the_cache_folder(fake_go: Go, tmp_path: Path) -> None:
    fake_go()
    before = PINNED.file
    (tmp_path / "module/notes.md").write_text("x")
    assert PINNED.file == before
    (tmp_path / "module/go.sum").write_text("x")
    assert PINNED.file != before


def test_a_published_program_is_installed_at_its_version(fake_go: Go, tmp_path: Path) -> None:
    module = tmp_path / "theirs"
    module.mkdir()
    (module / "go.mod").write_text("module example.org/tool\n\ngo 1.25\n")
    download = f"""[ "$1" = mod ] && {{ echo '{{"Dir": "{module}"}}'; exit; }}; touch "$GOBIN/tool" """
    call_log = fake_go(then=download)
    assert PUBLISHED.built(print).is_file()
    assert PUBLISHED.file.parent.name.startswith("tool-v1.2.3-")
    downloads, install = call_log.read_text().splitlines()
    assert downloads.endswith("mod download -json example.org/tool@v1.2.3")
    assert install.endswith(" example.org/tool/cmd/tool@v1.2.3")


def test_a_failed_build_reports_the_reason_and_leaves_only_the_lock(fake_go: Go) -> None:
    fake_go(then="echo no such package >&2; exit 1")
    with pytest.raises(BuildFailed, match=r"tool could not be built.*\n.*no such package"):
        PINNED.built(print)
    assert [path.name for path in cache_folder().iterdir()] == ["tool.lock"]


@pytest.mark.parametrize(
    "version",
    [
        "go version go1.25.9 linux/amd64",
        "go version go1.26rc1 linux/amd64",
        "go version unknown",
        "go: download go1.26.0 for linux/amd64: toolchain not available",
    ],
)
def test_rejects_an_old_go_with_its_version_and_the_required_one(fake_go: Go, version: str) -> None:
    fake_go(version)
    with pytest.raises(RequirementMissing, match=r"Go 1\.26\.0 or newer.*it builds tool") as rejected:
        PINNED.built(print)
    assert version in str(rejected.value)


@pytest.mark.parametrize(
    "version", ["go version go1.26.0 linux/amd64", "go version devel go1.27-1a2b3c Mon linux/amd64"]
)
def test_builds_with_a_new_enough_go(fake_go: Go, version: str) -> None:
    fake_go(version)
    assert PINNED.built(print).is_file()
