"""Files of strangers with deeply nested JSON are rejected with place and reason, whoever reads them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from specbench_api.outcome.termination import Exit
from specbench_client.bounded_json import parse_json
from specbench_client.cli import exit_code

DEEP = "[" * 100_000 + "]" * 100_000


@pytest.mark.parametrize(
    "text", [DEEP, '{"a":' * 50_000, DEEP.encode(), "9" * 5000], ids=["lists", "mappings", "bytes", "digits"]
)
def test_json_with_too_much_nesting_or_too_many_digits_is_a_decode_error(text: str | bytes) -> None:
    with pytest.raises(json.JSONDecodeError):
        parse_json(text)


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("log.jsonl", ["analyze", "drift", "FILE", "FILE"]),
        ("prompts.jsonl", ["dataset", "inspect", "FILE"]),
    ],
)
def test_a_command_rejects_deeply_nested_json_with_the_file(
    name: str, command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / name
    file.write_text(DEEP)
    assert exit_code([str(file) if word == "FILE" else word for word in command]) == Exit.BAD_INPUT
    error = capsys.readouterr().err
    assert str(file) in error
    assert len(error) < 1000
