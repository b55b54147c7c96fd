"""In a client Job, the files that a spec names are read below the declared folders only."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from specbench_api.spec import dataset
from specbench_api.spec.chat_template import ChatTemplate
from specbench_api.spec.dataset import FILE_ROOTS_VARIABLE, Selection
from specbench_api.spec.model import Target
from specbench_client.errors import BadInput
from specbench_client.file_roots import readable_path
from specbench_client.load.arrivals import load_trace
from specbench_client.store.locations import open_baseline, read_object
from specbench_client.workload import locations
from specbench_client.workload.chat_template.loading import load_template
from specbench_client.workload.locations import hub_file, rows_of_selection

SECRET = "AWS_SECRET_ACCESS_KEY=hidden"
READERS: dict[str, Callable[[str], object]] = {
    "dataset.uri": lambda path: rows_of_selection(Selection(source="jsonl", uri=path), Path()),
    "load.arrival.uri": lambda path: load_trace(path, Path()),
    "chatTemplate.tokenizer": lambda path: load_template(
        ChatTemplate(applied_by="Client", tokenizer=path), Target(name="a/b"), Path()
    ),
    "spec.model.tokenizer": lambda path: load_template(
        ChatTemplate(applied_by="Client"), Target(name="a/b", tokenizer=path), Path()
    ),
    "spec.model.path": lambda path: load_template(
        ChatTemplate(applied_by="Client"), Target(name="a/b", path=path), Path()
    ),
    "gate.baselineRef.uri": open_baseline,
}


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder that clients may read. Beside it is a secret."""
    folder = tmp_path / "prompts"
    folder.mkdir()
    (tmp_path / "secret").write_text(SECRET)
    monkeypatch.setenv(FILE_ROOTS_VARIABLE, f"{folder}:/nowhere")
    return folder


OUTSIDE = (
    "/proc/self/environ",
    "/proc/self/root/proc/1/environ",
    "/sys/kernel/notes",
    "/dev/zero",
    "/run/secrets/eks.amazonaws.com/serviceaccount/token",
    "/var/run/secrets/kubernetes.io/serviceaccount/token",
    "/etc/passwd",
    "{root}/../secret",
    "{root}/link",
    "{root}/folder-link/secret",
    "{root}x/prompts.jsonl",
    "relative",
    "~/x",
)


@pytest.mark.parametrize("path", OUTSIDE)
@pytest.mark.parametrize("field", READERS)
def test_path_outside_the_roots_is_rejected_by_each_field(field: str, path: str, root: Path) -> None:
    (root / "link").symlink_to("../secret")
    (root / "folder-link").symlink_to("..")
    with pytest.raises(BadInput) as caught:
        READERS[field](path.format(root=root))
    message = str(caught.value)
    assert message.startswith(f"{field}: ")
    assert f"({root}, /nowhere)" in message
    assert "put it on a volume (dataset.pvc), or give s3://BUCKET/KEY" in message
    assert SECRET not in message


def test_template_outside_the_roots_is_rejected(root: Path, tmp_path: Path) -> None:
    (root / "tokenizer.json").write_text('{"model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}}')
    template = ChatTemplate(applied_by="Client", tokenizer=str(root), template="/proc/self/environ")
    with pytest.raises(BadInput, match=r"^chatTemplate.template: /proc/self/environ is not below a folder"):
        load_template(template, Target(name="a/b"), tmp_path)


def test_tokenizer_file_that_links_out_of_the_roots_is_rejected(root: Path, tmp_path: Path) -> None:
    (root / "tokenizer.json").symlink_to("../secret")
    with pytest.raises(BadInput, match="is not below a folder"):
        load_template(ChatTemplate(applied_by="Client", tokenizer=str(root)), Target(name="a/b"), tmp_path)


def test_link_out_of_a_volume_is_rejected(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (locations, dataset):
        monkeypatch.setattr(module, "PVC_FOLDER", str(root))
    (root / "claim").mkdir()
    (root / "claim" / "link.jsonl").symlink_to("../../secret")
    selection = Selection.model_validate({"source": "jsonl", "pvc": {"claimName": "claim", "path": "link.jsonl"}})
    with pytest.raises(BadInput, match=r"^dataset.pvc: .* is not below a folder"):
        rows_of_selection(selection, Path())


def test_file_below_a_root_is_read_also_through_links_within_it(root: Path) -> None:
    (root / "data").mkdir()
    (root / "data" / "p.jsonl").write_text('{"id": "a", "prompt": "hi"}\n')
    (root / "link.jsonl").symlink_to("data/p.jsonl")
    for name in ("data/p.jsonl", "data/../data/p.jsonl", "link.jsonl"):
        assert len(rows_of_selection(Selection(source="jsonl", uri=str(root / name)), Path())) == 1


def test_named_pipe_is_rejected_without_waiting_for_it(root: Path) -> None:
    os.mkfifo(root / "pipe")
    with pytest.raises(BadInput, match="neither a file nor a folder"):
        load_trace(str(root / "pipe"), Path())


@pytest.mark.parametrize("name", ["\0", "x" * 300, "loop"])
def test_invalid_path_is_bad_input(name: str, root: Path) -> None:
    (root / "loop").symlink_to("loop")
    with pytest.raises(BadInput, match="give the path of a file"):
        readable_path(root / name, "f")


def test_every_file_may_be_read_on_a_persons_own_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(FILE_ROOTS_VARIABLE, raising=False)
    (tmp_path / "t.csv").write_text("timestamp\n1\n2\n")
    assert load_trace(str(tmp_path / "t.csv"), Path()).tolist() == [1, 2]


# Addresses.


@pytest.mark.parametrize(
    "uri", ["s3://latest?endpoint=http:%2F%2F169.254.169.254/meta-data/x", "s3://b#c/key", "s3://B/k"]
)
def test_object_is_read_from_a_bucket_and_not_from_another_server(uri: str) -> None:
    with pytest.raises(BadInput, match="is not a valid bucket name"):
        read_object(uri)


@pytest.mark.usefixtures("root")
def test_baseline_is_not_read_from_another_server_in_a_client_job() -> None:
    with pytest.raises(BadInput, match=r"^gate\.baselineRef\.uri: .*: a client Job reads no other server"):
        open_baseline("s3://latest/x?endpoint=http://169.254.169.254")


def test_hub_address_with_a_second_address_is_rejected() -> None:
    with pytest.raises(BadInput, match="give hf://datasets/OWNER/NAME/FILE of one file"):
        hub_file("hf://datasets/a/b/c::/proc/self/environ")
