"""`--header`: what is sent with each request, and what specbench sends itself."""

from __future__ import annotations

import pytest

from specbench_client.cli.headers import KEY_VARIABLE, headers_of
from specbench_client.errors import BadInput
from specbench_client.transport.exchange import HttpRequest
from specbench_client.transport.kernel_transport import wire_of
from specbench_client.transport.managed import MANAGED


@pytest.fixture(autouse=True)
def no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(KEY_VARIABLE, raising=False)


def test_headers_are_taken_as_they_are_written() -> None:
    assert headers_of(["X-Tenant: a: b", "x-empty:"]) == {"X-Tenant": "a: b", "x-empty": ""}


@pytest.mark.parametrize("name", ["Content-Length", "host", "Transfer-Encoding", "CONNECTION", "X-Request-Id"])
def test_a_header_that_specbench_sends_itself_is_refused_with_the_reason(name: str) -> None:
    with pytest.raises(BadInput, match=f"the header {name} is set by specbench itself: {MANAGED[name.lower()]}"):
        headers_of(["X-Tenant: a", f"{name}: 5"])


def test_every_header_of_the_request_line_is_managed_but_what_an_answer_may_look_like() -> None:
    head = wire_of(HttpRequest("http://h/", b"")).partition(b"\r\n\r\n")[0].decode()
    sent = {line.partition(":")[0].lower() for line in head.split("\r\n")[1:]}
    assert sent - MANAGED.keys() == {"accept"}


@pytest.mark.parametrize("text", ["no colon", "a b: c", ": x", "X: a\r\nHost: b", "X: a\rb"])
def test_what_is_no_header_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="is not 'NAME: VALUE'"):
        headers_of([text])


def test_a_header_that_is_given_twice_is_refused_and_not_dropped() -> None:
    with pytest.raises(BadInput, match="x-tenant is given twice"):
        headers_of(["X-Tenant: a", "x-tenant: b"])


def test_the_key_gives_way_to_an_authorization_of_the_users_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_VARIABLE, "secret")
    assert headers_of([]) == {"Authorization": "Bearer secret"}
    assert headers_of(["authorization: Basic x"]) == {"authorization": "Basic x"}
