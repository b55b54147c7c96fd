"""A real S3 server (versitygw over a folder) on 127.0.0.1, which can be stopped and started again.

The program is the one that hack/cluster keeps; if it is missing, it is built, which takes a minute and needs Go.
SPECBENCH_TEST_S3=endpoint,key,secret,bucket makes the tests use another server, except those that stop it.
"""

from __future__ import annotations

import io
import os
import signal
import socket
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from botocore.awsrequest import AWSResponse
from botocore.httpsession import URLLib3Session

from specbench_client.store.folder import FolderStore
from specbench_client.store.s3 import S3Store, s3_client
from specbench_cluster.binaries import build
from specbench_cluster.cluster import to_stderr
from specbench_cluster.settings import Settings
from specbench_testing.ports import free_port

REGION = "us-east-1"
_READY_WITHIN_S = 120.0


@dataclass(frozen=True)
class S3Access:
    """Endpoint, credentials and bucket."""

    endpoint: str
    key: str
    secret: str
    bucket: str

    def environment(self) -> dict[str, str]:
        """The standard AWS variables for this bucket, without any settings of this machine."""
        return {
            "AWS_ENDPOINT_URL_S3": self.endpoint,
            "AWS_REGION": REGION,
            "AWS_ACCESS_KEY_ID": self.key,
            "AWS_SECRET_ACCESS_KEY": self.secret,
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        }

    def enter(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Set these variables in this process and remove all other AWS variables."""
        for name in [name for name in os.environ if name.startswith("AWS_") and name != "AWS_CA_BUNDLE"]:
            monkeypatch.delenv(name)
        for name, value in self.environment().items():
            monkeypatch.setenv(name, value)


@dataclass
class S3Server:
    """One versitygw; its objects are kept after a stop."""

    folder: Path
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None
    key: str = "test-key"
    secret: str = "test-secret"

    @property
    def access(self) -> S3Access:
        return S3Access(f"http://127.0.0.1:{self.port}", self.key, self.secret, "specbench-tests")

    def start(self) -> None:
        """Start the server and wait until it listens."""
        (self.folder / "objects" / self.access.bucket).mkdir(parents=True, exist_ok=True)
        call = [
            str(versitygw()), "--access", self.access.key, "--secret", self.access.secret, "--region", REGION,
            "--port", f"127.0.0.1:{self.port}", "--quiet", "--keep-alive", "posix", str(self.folder / "objects"),
        ]  # fmt: skip
        with (self.folder / "server.log").open("ab") as log:
            self.process = subprocess.Popen(call, stdout=log, stderr=subprocess.STDOUT, cwd=self.folder)
        deadline = time.monotonic() + _READY_WITHIN_S
        while not _listens(self.port):
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"versitygw did not start: {(self.folder / 'server.log').read_text()[-2000:]}")
            time.sleep(0.02)

    def stop(self) -> None:
        """Kill the server immediately."""
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
            self.process = None


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def versitygw() -> Path:
    """The program; built if it is missing."""
    return build(Settings().cache, to_stderr, "versitygw")["versitygw"]


@pytest.fixture(scope="session")
def s3_access(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Access]:
    """A bucket for the whole session."""
    given = os.environ.get("SPECBENCH_TEST_S3")
    if given:
        yield S3Access(*given.split(","))
        return
    server = S3Server(tmp_path_factory.mktemp("s3"))
    server.start()
    try:
        yield server.access
    finally:
        server.stop()


@pytest.fixture
def s3_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    """A separate server for this test that it can stop and start; this process uses its credentials."""
    folder = tmp_path / "s3"
    folder.mkdir()
    server = S3Server(folder)
    server.start()
    server.access.enter(monkeypatch)
    try:
        yield server
    finally:
        server.stop()


_CLIENTS: dict[S3Access, Any] = {}
"""The client of each bucket: making one takes a fifth of a second."""


@pytest.fixture
def s3_store(s3_access: S3Access, monkeypatch: pytest.MonkeyPatch) -> S3Store:
    """A separate prefix in the session's bucket, with multipart uploads from 5 MiB on."""
    s3_access.enter(monkeypatch)
    if s3_access not in _CLIENTS:
        _CLIENTS[s3_access] = s3_client()
    return S3Store(_CLIENTS[s3_access], s3_access.bucket, f"test-{uuid.uuid4().hex[:12]}")


# Servers with habits: an answer of the real one is changed, or replaced by an error.

Habit = Callable[[Any, Callable[[], AWSResponse]], AWSResponse]
"""Answers a prepared request of botocore. The function that it gets sends the request to the real server."""


def store_with_habit(habit: Habit, access: S3Access, monkeypatch: pytest.MonkeyPatch, **client: str) -> S3Store:
    """A store of its own at a server with this habit. `client`: arguments of `s3_client`."""
    access.enter(monkeypatch)
    session, create = URLLib3Session(), s3_client

    def create_with_habit(*args: Any, **more: Any) -> Any:
        made: Any = create(*args, **more)
        made.meta.events.register("before-send.s3", lambda request, **_: habit(request, lambda: session.send(request)))
        return made

    monkeypatch.setattr("specbench_client.store.s3.s3_client", create_with_habit)
    return S3Store(create_with_habit(**client), access.bucket, f"test-{uuid.uuid4().hex[:12]}")


def s3_answer(request: Any, status: int, code: str = "", message: str = "", **headers: str) -> AWSResponse:
    """An answer with an error of S3, or an empty one without a code."""
    error = f"<Error><Code>{code}</Code><Message>{message}</Message></Error>".encode() if code else b""
    given: Any = {"Content-Length": str(len(error)), **headers}
    return AWSResponse(request.url, status, given, _Raw(error))


class IgnoringConditions(FolderStore):
    """Overwrites, as servers do that ignore the header If-None-Match."""

    def put(self, key: str, data: bytes) -> None:
        """Replace it."""
        self.replace(key, data)

    def uri(self, key: str = "") -> str:
        """As of a bucket."""
        return f"s3://bench/{key}"


class _Raw(io.BytesIO):
    def stream(self, *_: Any, **__: Any) -> Iterator[bytes]:
        """Yield the body."""
        yield self.read()
