"""Fixtures of the client's tests; the others are defined in support/specbench_testing."""

from __future__ import annotations

import logging
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from specbench_client.drive import engine_connection
from specbench_testing.s3 import s3_access, s3_server, s3_store

__all__ = ["s3_access", "s3_server", "s3_store"]


@pytest.fixture(autouse=True)
def no_pause_between_first_completions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Try a first completion again at once: a server that fails in a test stays the same, and each pause is seconds."""
    monkeypatch.setattr(engine_connection, "FIRST_COMPLETION_PAUSE_S", 0.0)


@pytest.fixture
def restored_logging() -> Iterator[None]:
    """Restore the root logger that the program configures, because it runs in pytest's process."""
    handlers, level = logging.root.handlers[:], logging.root.level
    yield
    logging.root.handlers[:] = handlers
    logging.root.setLevel(level)


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A self-signed certificate for localhost and 127.0.0.1, and its key."""
    folder = tmp_path_factory.mktemp("tls")
    files = folder / "certificate.pem", folder / "key.pem"
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", *subject]
    subprocess.run([*command, "-out", str(files[0]), "-keyout", str(files[1])], check=True, capture_output=True)
    return files


@pytest.fixture
def tls(certificate: tuple[Path, Path]) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    return context


@pytest.fixture
def trusted_tls(tls: ssl.SSLContext, certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> ssl.SSLContext:
    """The context of a server whose certificate this process trusts."""
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
    return tls


@pytest.fixture(params=["http", "https"])
def server_tls(request: pytest.FixtureRequest) -> ssl.SSLContext | None:
    """Runs a test over both schemes: the context of a trusted server; None for http."""
    return request.getfixturevalue("trusted_tls") if request.param == "https" else None
