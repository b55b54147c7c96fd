"""An engine that repeats the client's own secrets: they are in no message, log, record, fact or result."""

from __future__ import annotations

import base64
import json
import logging
import threading
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest
from pydantic import JsonValue

from specbench_api.outcome.provenance import Fact
from specbench_api.spec.secret_refs import API_KEY_VARIABLE
from specbench_client.drive.options import DriveOptions
from specbench_client.errors import EngineFailed
from specbench_client.job import commands
from specbench_client.job.commands import run_program, termination_of
from specbench_client.known_secrets import SECRET_VARIABLES, fact_without_secrets, without_secrets
from specbench_client.transport.error_messages import http_error_message
from specbench_testing.resources import endpoint_edits
from specbench_testing.simulated_groups import plan_of, write_prompts

SECRETS = {name: f"plain words of {name.lower()}" for name in SECRET_VARIABLES}
"""Values without the form of a secret: only because they are known can they be removed."""
FORMS = [form for value in SECRETS.values() for form in (value, base64.b64encode(value.encode()).decode())]
TEXT = f"CUDA out of memory; {'; '.join(FORMS)}"


@pytest.fixture(autouse=True)
def secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)


@pytest.fixture(autouse=True)
def _restore_logging() -> Iterator[None]:
    """Restore the root logger that the program configures, because it runs in pytest's process."""
    handlers, level = logging.root.handlers[:], logging.root.level
    yield
    logging.root.handlers[:] = handlers
    logging.root.setLevel(level)


def secrets_in(text: str) -> list[str]:
    return [form for form in FORMS if form in text or form in text.replace("\\", "")]


class Echo(BaseHTTPRequestHandler):
    """A healthy engine that answers everything with the client's secrets."""

    authorization: ClassVar[list[str | None]] = []

    def do_GET(self) -> None:
        page = {"version": TEXT, "api_key": "x", "model_path": TEXT, "data": [{"id": TEXT, "max_model_len": TEXT}]}
        self._answer(200, json.dumps(page))

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.authorization.append(self.headers["authorization"])
        self._answer(500, json.dumps({"error": {"message": TEXT}}))

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 -- the base class's name
        """Log nothing."""

    def _answer(self, status: int, text: str) -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def engine() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Echo)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.mark.process
@pytest.mark.parametrize("external", [False, True])
def test_a_clients_message_log_and_results_contain_no_secret(
    external: bool, engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(commands, "DriveOptions", partial(DriveOptions, healthy_within_s=0.5))
    monkeypatch.setattr(Echo, "authorization", [])
    monkeypatch.setenv(API_KEY_VARIABLE, f"{SECRETS[API_KEY_VARIABLE]}\n")  # as in a Secret made from a file
    edits = endpoint_edits("none", dialect="vllm") if external else {}
    (tmp_path / "plan.json").write_text(plan_of(write_prompts(tmp_path / "p.jsonl"), edits).to_json())
    code = run_program(
        ["drive", "--plan", str(tmp_path / "plan.json"), "--group", "0", "--attempt", "0", "--endpoint", engine,
         "--results", str(tmp_path / "results"), "--termination-log", str(tmp_path / "ended")]
    )  # fmt: skip
    assert code == 4
    ended = json.loads((tmp_path / "ended").read_text())
    assert (ended["reason"], "CUDA out of memory" in ended["message"]) == ("FirstRequestFailed", True)
    log = "".join(capsys.readouterr())
    assert "CUDA out of memory" in log
    files = {str(file.relative_to(tmp_path)): file.read_bytes().decode(errors="replace") for file in tmp_path.rglob("*")
             if file.is_file()}  # fmt: skip
    assert {name: found for name, text in {**files, "log": log}.items() if (found := secrets_in(text))} == {}
    key = f"Bearer {SECRETS[API_KEY_VARIABLE]}" if external else None
    assert set(Echo.authorization) == {key}, "only servers that are already running get the key"


def test_an_answer_is_redacted_before_it_is_cut() -> None:
    """A cut would leave the beginning of a secret that no comparison finds."""
    secret = SECRETS["HF_TOKEN"]
    for length in range(380, 520):
        message = http_error_message(500, f"{'x ' * (length // 2)}{secret}".encode())
        assert secret[:12] not in message
    assert "redirected to" in http_error_message(302, b"", f"http://{secret}/")
    assert secret not in http_error_message(302, b"", f"http://{secret}/")


def test_errors_of_every_kind_are_redacted() -> None:
    for error in (EngineFailed(TEXT), KeyError(TEXT), ValueError(TEXT)):
        assert secrets_in(termination_of(error).message) == []


def test_facts_keep_commits_and_lose_secrets() -> None:
    commit = "0e9e39f249a16976918f6564b8830bc894c89659"
    value: JsonValue = {"revision": commit, "note": TEXT, "list": [TEXT]}
    fact = fact_without_secrets(Fact.observed(value, "GET /info"))
    assert secrets_in(fact.to_json()) == []
    assert isinstance(fact.value, dict)
    assert fact.value["revision"] == commit
    assert secrets_in(str(fact_without_secrets(Fact.unknown(TEXT)).reason)) == []


def test_without_secrets_in_the_environment_only_forms_are_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in SECRETS:
        monkeypatch.delenv(name)
    assert without_secrets("plain words of hf_token, password=x") == "plain words of hf_token, password=[redacted]"
