"""Location of tokenizer and chat template, and errors if one is missing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from specbench_api.spec.chat_template import ChatTemplate
from specbench_api.spec.model import PvcModel, Target
from specbench_client.errors import BadInput
from specbench_client.workload.chat_template import loading
from specbench_client.workload.chat_template.loading import (
    TokenizerLocation,
    TokenizerStorage,
    load_template,
    read_file,
    tokenizer_location,
)
from specbench_testing.chat_templates import tokenizer_folder


def declared(**changed: Any) -> ChatTemplate:
    return ChatTemplate.model_validate({"appliedBy": "Client"} | changed)


@pytest.mark.parametrize(
    ("template", "model", "expected"),
    [
        ({}, {}, (TokenizerStorage.HUB, "o/m@v1")),
        ({}, {"tokenizer": "o/t"}, (TokenizerStorage.HUB, "o/t@main")),
        ({}, {"tokenizer": "o/m"}, (TokenizerStorage.HUB, "o/m@v1")),
        ({"tokenizer": "o/t@abc"}, {"tokenizer": "o/u"}, (TokenizerStorage.HUB, "o/t@abc")),
        ({"tokenizer": "hf://o/t/"}, {}, (TokenizerStorage.HUB, "o/t@main")),
        ({"tokenizer": "s3://b/t/"}, {}, (TokenizerStorage.S3, "s3://b/t")),
        ({"tokenizer": "/models/t"}, {}, (TokenizerStorage.FOLDER, "/models/t")),
        ({"tokenizer": "/models/t/tokenizer.json"}, {}, (TokenizerStorage.FOLDER, "/models/t")),
        ({}, {"path": "/models/m"}, (TokenizerStorage.FOLDER, "/models/m")),
        ({}, {"path": "/models/m.gguf", "tokenizer": "/models/t"}, (TokenizerStorage.FOLDER, "/models/t")),
        ({}, {"uri": "s3://b/m"}, (TokenizerStorage.S3, "s3://b/m")),
    ],
)
def test_most_specific_setting_gives_the_tokenizer(
    template: dict[str, Any], model: dict[str, Any], expected: tuple[TokenizerStorage, str], tmp_path: Path
) -> None:
    found = tokenizer_location(declared(**template), Target(name="o/m", revision="v1", **model), tmp_path)
    assert (found.kind, found.address) == expected


def test_local_folder_takes_precedence_over_a_hub_name(tmp_path: Path) -> None:
    (tmp_path / "o" / "t").mkdir(parents=True)
    found = tokenizer_location(declared(tokenizer="o/t"), Target(name="m"), tmp_path)
    assert (found.kind, found.address) == (TokenizerStorage.FOLDER, str(tmp_path / "o" / "t"))


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (
            {"path": "/models/m.gguf"},
            "the tokenizer inside a GGUF file is not supported: set chatTemplate.tokenizer",
        ),
        ({"uri": "https://host/m"}, "a tokenizer cannot be read from this address: set chatTemplate.tokenizer"),
        ({"pvc": PvcModel(claim_name="models", path="m")}, "the volume models is not mounted"),
    ],
)
def test_unsupported_tokenizer_location_is_rejected_with_the_field(
    model: dict[str, Any], words: str, tmp_path: Path
) -> None:
    with pytest.raises(BadInput, match=words):
        tokenizer_location(declared(), Target(name="o/m", **model), tmp_path)


def test_model_on_a_mounted_volume_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "PVC_FOLDER", str(tmp_path))
    (tmp_path / "models").mkdir()
    model = Target(name="o/m", pvc=PvcModel(claim_name="models", path="/m", sub_path="llama"))
    assert tokenizer_location(declared(), model, tmp_path).address == str(tmp_path / "models" / "llama" / "m")


def test_tokenizer_is_read_from_s3(tmp_path: Path) -> None:
    folder = tokenizer_folder(tmp_path, "chatml")

    def fetch(uri: str) -> bytes:
        path = folder / uri.removeprefix("s3://bucket/t/")
        if not path.exists():
            raise BadInput("there is no such object")
        return path.read_bytes()

    local, remote = declared(tokenizer=str(folder)), declared(tokenizer="s3://bucket/t")
    template = load_template(remote, Target(name="m"), tmp_path, fetch)
    assert template.template_sha256 == load_template(local, Target(name="m"), tmp_path).template_sha256
    with pytest.raises(BadInput, match=r"s3://bucket/other has no tokenizer.json: set chatTemplate.tokenizer to"):
        load_template(declared(tokenizer="s3://bucket/other"), Target(name="m"), tmp_path, fetch)


class EntryNotFoundError(Exception):
    """Has the name of the exception in huggingface_hub."""


class GatedRepoError(Exception):
    """Has the name of the exception in huggingface_hub."""


@pytest.mark.parametrize(
    ("kind", "words"),
    [(EntryNotFoundError, None), (GatedRepoError, "accept its terms on its hub page and set HF_TOKEN")],
)
def test_missing_hub_file_is_none_and_a_gated_one_is_rejected(
    kind: type[Exception], words: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(uri: str) -> Path:
        cause = FileNotFoundError("Access to model is restricted: gated repo" if words else "no such file")
        cause.__cause__ = kind()
        raise BadInput("the data set could not be read") from cause

    monkeypatch.setattr(loading, "hub_file", fail)
    place = TokenizerLocation(TokenizerStorage.HUB, "o/m@main", "spec.model.name")
    if words is None:
        assert read_file(place, "chat_template.jinja", None) is None
    else:
        with pytest.raises(BadInput, match=words):
            read_file(place, "chat_template.jinja", None)


NAMED = {"chat_template": [{"name": "default", "template": "one"}, {"name": "rag", "template": "two"}]}


@pytest.mark.parametrize(
    ("files", "fields", "expected"),
    [
        ({"chat_template.jinja": "own"}, {}, "own"),
        ({"chat_template.jinja": "own", "tokenizer_config.json": json.dumps({"chat_template": "told"})}, {}, "own"),
        ({"tokenizer_config.json": json.dumps({"chat_template": "told"})}, {}, "told"),
        ({"tokenizer_config.json": json.dumps(NAMED)}, {}, "one"),
        ({"tokenizer_config.json": json.dumps(NAMED)}, {"name": "rag"}, "two"),
        ({"chat_template.jinja": "own", "additional_chat_templates/rag.jinja": "file"}, {"name": "rag"}, "file"),
        ({"chat_template.jinja": "own", "mine.jinja": "mine"}, {"template": "mine.jinja"}, "mine"),
    ],
)
def test_template_is_the_one_transformers_uses(
    files: dict[str, str], fields: dict[str, str], expected: str, tmp_path: Path
) -> None:
    folder = tokenizer_folder(tmp_path, "chatml")
    (folder / "chat_template.jinja").unlink()
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    template = load_template(declared(tokenizer=str(folder), **fields), Target(name="m"), folder)
    assert template.text([]) == expected


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        (
            {},
            (
                "has no chat template: set chatTemplate.template to a template of your own,"
                " or set chatTemplate.appliedBy: Engine"
            ),
        ),
        ({"name": "rag"}, r"has no chat template named 'rag' \(found: none\)"),
        ({"template": "mine.jinja"}, "mine.jinja: No such file or directory: give a Jinja file"),
        ({"template": "s3://b/mine.jinja"}, "S3 is not available here: give a local file"),
    ],
)
def test_missing_template_is_rejected_with_a_remedy(fields: dict[str, str], words: str, tmp_path: Path) -> None:
    folder = tokenizer_folder(tmp_path, "chatml")
    (folder / "chat_template.jinja").unlink()
    with pytest.raises(BadInput, match=words):
        load_template(declared(tokenizer=str(folder), **fields), Target(name="m"), folder)
