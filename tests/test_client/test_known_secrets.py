"""Known secrets never reach logs, results or reports, and the search for them finds every form."""

from __future__ import annotations

import base64
import gzip
import html
import io
import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote, quote_plus

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import JsonValue

from specbench_api.outcome.provenance import Fact
from specbench_api.spec.secret_refs import API_KEY_VARIABLE
from specbench_client.drive.options import DriveOptions
from specbench_client.errors import EngineFailed
from specbench_client.job import commands
from specbench_client.job.commands import run_program, termination_of
from specbench_client.known_secrets import (
    SECRET_VARIABLES,
    fact_without_secrets,
    keep_headers_secret,
    key_remedy,
    without_known_secrets,
    without_secrets,
)
from specbench_client.transport.error_messages import http_error_message
from specbench_testing.http_server import Reply, Request, http_server
from specbench_testing.resources import endpoint_edits
from specbench_testing.secret_search import find_secrets
from specbench_testing.simulated_groups import plan_of, write_prompts

pytestmark = pytest.mark.usefixtures("restored_logging")

SECRETS = {name: f"plain words of {name.lower()}" for name in SECRET_VARIABLES}
"""Values without the form of a secret: only because they are known can they be removed."""
FORMS = [form for value in SECRETS.values() for form in (value, base64.b64encode(value.encode()).decode())]
TEXT = f"CUDA out of memory; {'; '.join(FORMS)}"


@pytest.fixture(autouse=True)
def secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)


def secrets_in(text: str) -> list[str]:
    return [form for form in FORMS if form in text or form in text.replace("\\", "")]


class EchoEngine(NamedTuple):
    """A healthy engine that answers everything with the client's secrets."""

    url: str
    authorization: list[str | None]


@pytest.fixture
def engine() -> Iterator[EchoEngine]:
    page = {"version": TEXT, "api_key": "x", "model_path": TEXT, "data": [{"id": TEXT, "max_model_len": TEXT}]}
    authorization: list[str | None] = []

    def answer(request: Request) -> Reply:
        if request.method == "GET":
            return 200, {}, json.dumps(page).encode()
        authorization.append(request.headers["authorization"])
        return 500, {}, json.dumps({"error": {"message": TEXT}}).encode()

    with http_server(answer) as port:
        yield EchoEngine(f"http://127.0.0.1:{port}", authorization)


@pytest.mark.process
@pytest.mark.parametrize("external", [False, True])
def test_a_clients_message_log_and_results_contain_no_secret(
    external: bool,
    engine: EchoEngine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(commands, "DriveOptions", partial(DriveOptions, healthy_within_s=0.5))
    monkeypatch.setenv(API_KEY_VARIABLE, f"{SECRETS[API_KEY_VARIABLE]}\n")  # as in a Secret made from a file
    edits = endpoint_edits("none", dialect="vllm") if external else {}
    (tmp_path / "plan.json").write_text(plan_of(write_prompts(tmp_path / "p.jsonl"), edits).to_json())
    code = run_program(
        ["drive", "--plan", str(tmp_path / "plan.json"), "--group", "0", "--attempt", "0", "--endpoint", engine.url,
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
    assert set(engine.authorization) == {key}, "only servers that are already running get the key"


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


@pytest.fixture
def no_headers() -> Iterator[None]:
    yield
    keep_headers_secret({})


HEADERS = {
    "a key": ({"api-key": "words of/a+key"}, ["words of/a+key"]),
    "a scheme": ({"Authorization": "Bearer words-of-a-key"}, ["Bearer words-of-a-key", "words-of-a-key"]),
    "user and password": (
        {"Authorization": f"Basic {base64.b64encode(b'me:words of a password').decode()}"},
        ["me:words of a password", "words of a password"],
    ),
    "cookies": ({"Cookie": "theme=dark; session=words-of-a-session"}, ["words-of-a-session"]),
    "quotes and angles": ({"X-Auth": 'words "of" <a> key'}, ['words "of" <a> key']),
    "a key with a slash": ({"X-Auth": "abcdefg/hijkl"}, ["abcdefg/hijkl"]),
}
ENCODERS: dict[str, Callable[[str], str]] = {
    "plain": str,
    "URL-encoded": lambda value: quote(value, safe=""),
    "form-encoded": quote_plus,
    "JSON": lambda value: json.dumps(value)[1:-1],
    "JSON with escaped slashes": lambda value: json.dumps(value)[1:-1].replace("/", "\\/"),
    "HTML": html.escape,
    "base64": lambda value: base64.b64encode(value.encode()).decode().rstrip("="),
}


@pytest.mark.usefixtures("no_headers")
@pytest.mark.parametrize("encoding", ENCODERS)
@pytest.mark.parametrize("kind", HEADERS)
def test_values_of_given_headers_are_removed_in_every_form(kind: str, encoding: str) -> None:
    headers, echoed = HEADERS[kind]
    keep_headers_secret(headers)
    for value in echoed:
        text = f"rejected: {ENCODERS[encoding](value)}, in http://h/"
        assert without_known_secrets(text) == "rejected: [redacted], in http://h/"
        assert ENCODERS[encoding](value) not in without_secrets(text)


@pytest.mark.usefixtures("no_headers")
def test_short_values_and_media_types_are_no_secrets() -> None:
    keep_headers_secret({"Accept": "application/json; charset=utf-8", "X-Tenant": "bench", "Authorization": "Bearer x"})
    text = "bench: application/json is not text/event-stream, Bearer"
    assert without_secrets(text) == text
    keep_headers_secret({"X-Tenant": "benches"})
    assert without_known_secrets("benches") == "benches"
    keep_headers_secret({"X-Tenant": "benchers"})
    assert without_known_secrets("benchers") == "[redacted]"
    keep_headers_secret({})
    assert without_known_secrets("benchers") == "benchers"


def test_keys_in_a_query_are_removed() -> None:
    text = "http://h/p?model=m&key=abc&x=1 http://h/?sig=a%2Fb#c http://h/?api-key=k&api-version=2 what? code=abc"
    assert without_secrets(text) == (
        "http://h/p?model=m&key=[redacted]&x=1 http://h/?sig=[redacted]#c http://h/?api-key=[redacted]&api-version=2"
        " what? code=abc"
    )


KEY = "t7Qm/Vx2Lr9+KdPz4WnB8sYc1HgJ5fUaE3oTiR6M"
OTHER = "AKIAQ4ZT7LM2XV5RN8WB"


def parquet(text: str) -> bytes:
    file = io.BytesIO()
    pq.write_table(pa.table({"n": [1, 2], "text": ["x", text]}), file, compression="zstd")
    return file.getvalue()


def zstd(text: str) -> bytes:
    file = pa.BufferOutputStream()
    with pa.CompressedOutputStream(file, "zstd") as stream:
        stream.write(text.encode())
    return bytes(file.getvalue())


SEARCH_FORMS: dict[str, Callable[[str], str]] = {
    "plain": str,
    "its beginning": lambda value: value[:12],
    "its end": lambda value: value[-12:],
    "reversed": lambda value: value[::-1],
    "reversed beginning": lambda value: value[:12][::-1],
    "base64": lambda value: base64.b64encode(value.encode()).decode(),
    "base64 within a text": lambda value: base64.b64encode(f"user:{value}@".encode()).decode(),
    "base64 within another text": lambda value: base64.b64encode(f"key={value}\n".encode()).decode(),
    "URL-safe base64": lambda value: base64.urlsafe_b64encode(value.encode()).decode(),
    "URL-encoded": lambda value: quote(value, safe=""),
    "form-encoded": quote_plus,
    "JSON": json.dumps,
    "JSON with escaped slashes": lambda value: json.dumps(value).replace("/", "\\/"),
    "JSON in characters' numbers": lambda value: "".join(f"\\u{ord(one):04x}" for one in value),
    "hexadecimal": lambda value: value.encode().hex(),
}
FILES: dict[str, Callable[[str], bytes]] = {
    "text": str.encode,
    "gzip": lambda text: gzip.compress(text.encode()),
    "gzip twice": lambda text: gzip.compress(gzip.compress(text.encode())),
    "zstd": zstd,
    "Parquet": parquet,
}


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("form", SEARCH_FORMS)
def test_a_planted_value_is_found(form: str, file: str) -> None:
    planted = FILES[file](f"before {SEARCH_FORMS[form](KEY)} after")
    found = find_secrets({"key": KEY, "other": OTHER}, {"clean": b"nothing", "here": planted})
    assert {line.split(",")[0] for line in found} == {"here: key"}


@pytest.mark.parametrize("file", FILES)
def test_eleven_characters_and_other_values_are_no_hit(file: str) -> None:
    text = f"{KEY[:11]} {KEY[12:23]} {KEY.swapcase()} {'A' * 40} {base64.b64encode(KEY[:9].encode()).decode()}"
    assert find_secrets({"key": KEY, "other": OTHER}, {"here": FILES[file](text)}) == []


@pytest.mark.usefixtures("no_headers")
@pytest.mark.parametrize(
    ("key", "headers", "sent"),
    [
        ("", {}, False),
        ("", {"X-Tenant": "bench"}, False),
        ("", {"api-key": "short"}, True),
        ("", {"Authorization": "Bearer x"}, True),
        ("x", {}, True),
    ],
)
def test_whether_a_rejected_key_was_sent(
    monkeypatch: pytest.MonkeyPatch, key: str, headers: dict[str, str], *, sent: bool
) -> None:
    monkeypatch.setenv(API_KEY_VARIABLE, key)
    keep_headers_secret(headers)
    assert ("no key was sent" in key_remedy(), "was rejected" in key_remedy()) == (not sent, sent)
