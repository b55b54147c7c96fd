"""`--header`: headers of every request, and the headers that specbench reserves."""

from __future__ import annotations

import pytest

from specbench_api.spec.secret_refs import API_KEY_VARIABLE
from specbench_client.cli.measure import request_headers
from specbench_client.errors import BadInput
from specbench_client.transport.exchange import RESERVED_HEADERS, HttpRequest
from specbench_client.transport.kernel_transport import encode_request


@pytest.fixture(autouse=True)
def no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(API_KEY_VARIABLE, raising=False)


def test_headers_are_sent_as_written() -> None:
    assert request_headers(["X-Tenant: a: b", "x-empty:"]) == {"X-Tenant": "a: b", "x-empty": ""}


@pytest.mark.parametrize("name", ["Content-Length", "host", "Transfer-Encoding", "CONNECTION", "X-Request-Id"])
def test_reserved_header_is_rejected_with_the_reason(name: str) -> None:
    with pytest.raises(
        BadInput, match=f"the header {name} is set by specbench itself: {RESERVED_HEADERS[name.lower()]}"
    ):
        request_headers(["X-Tenant: a", f"{name}: 5"])


def test_every_header_that_specbench_sends_is_reserved_except_accept() -> None:
    head = encode_request(HttpRequest("http://h/", b""), keep=False).partition(b"\r\n\r\n")[0].decode()
    sent = {line.partition(":")[0].lower() for line in head.split("\r\n")[1:]}
    assert sent - RESERVED_HEADERS.keys() == {"accept"}


@pytest.mark.parametrize("text", ["no colon", "a b: c", ": x", "X: a\r\nHost: b", "X: a\rb"])
def test_malformed_header_is_rejected(text: str) -> None:
    with pytest.raises(BadInput, match="is not 'NAME: VALUE'"):
        request_headers([text])


def test_repeated_header_is_rejected() -> None:
    with pytest.raises(BadInput, match="x-tenant is given twice"):
        request_headers(["X-Tenant: a", "x-tenant: b"])


def test_given_authorization_header_replaces_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(API_KEY_VARIABLE, "secret")
    assert request_headers([]) == {"Authorization": "Bearer secret"}
    assert request_headers(["authorization: Basic x"]) == {"authorization": "Basic x"}


def test_key_comes_from_the_named_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(API_KEY_VARIABLE, "other")
    monkeypatch.setenv("MY_KEY", "secret")
    assert request_headers([], "MY_KEY") == {"Authorization": "Bearer secret"}


@pytest.mark.parametrize("value", [None, ""])
def test_named_variable_without_a_key_is_rejected(monkeypatch: pytest.MonkeyPatch, value: str | None) -> None:
    monkeypatch.setenv("MY_KEY", "") if value == "" else monkeypatch.delenv("MY_KEY", raising=False)
    with pytest.raises(BadInput, match="--api-key-env MY_KEY: this environment variable is not set"):
        request_headers([], "MY_KEY")
