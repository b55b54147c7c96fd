"""S3 errors from a real server: each has its own reason and a remedy."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError, IncompleteReadError
from botocore.parsers import ResponseParserError

from specbench_api.outcome.layout import manifest_key, point_root
from specbench_client.errors import BadInput, NotDurable
from specbench_client.store import s3
from specbench_client.store.locations import open_store, read_object
from specbench_client.store.points import PointStore
from specbench_client.store.retrying import RetryingStore, RetryPolicy
from specbench_client.store.s3 import S3Store, s3_client, translate_s3_errors
from specbench_client.store.store import Store
from specbench_testing.ports import free_port
from specbench_testing.s3 import S3Access, S3Server

OPERATIONS: dict[str, Callable[[Store], object]] = {
    "put": lambda store: store.put("plan.json", b"x"),
    "upload": lambda store: store.start_upload("big"),
    "replace": lambda store: store.replace("progress.json", b"x"),
    "get": lambda store: store.get("plan.json"),
    "open": lambda store: store.open("plan.json"),
    "keys": lambda store: store.keys("points/"),
}
UNREACHABLE = f"http://127.0.0.1:{free_port()}"
operations = pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)


def store_of(access: S3Access, monkeypatch: pytest.MonkeyPatch) -> S3Store:
    access.enter(monkeypatch)
    return S3Store(s3_client(), access.bucket, "p")


def failure_of(store: Store, operation: Callable[[Store], object]) -> NotDurable:
    with pytest.raises(NotDurable) as caught:
        operation(store)
    return caught.value


@operations
@pytest.mark.parametrize(
    ("wrong", "reason", "words"),
    [
        ({"bucket": "no-such-bucket"}, "BucketMissing", "'no-such-bucket' does not exist"),
        ({"key": "WRONG"}, "CredentialsRefused", "check the access key"),
        ({"secret": "WRONG"}, "CredentialsRefused", "check the access key"),
        ({"endpoint": UNREACHABLE}, "S3Away", UNREACHABLE),
    ],
    ids=["bucket", "key", "secret", "endpoint"],
)
def test_wrong_access_is_reported(  # noqa: PLR0917 -- the columns of the table
    wrong: dict[str, str],
    reason: str,
    words: str,
    operation: Callable[[Store], object],
    s3_access: S3Access,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    failure = failure_of(store_of(replace(s3_access, **wrong), monkeypatch), operation)

    assert failure.reason == reason
    assert words in str(failure)


@operations
def test_missing_credentials_are_reported(
    operation: Callable[[Store], object], s3_access: S3Access, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3_access.enter(monkeypatch)
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")

    failure = failure_of(S3Store(s3_client(), s3_access.bucket, "p"), operation)

    assert failure.reason == "CredentialsRefused"
    assert "AWS_ACCESS_KEY_ID" in str(failure)


@operations
def test_clock_skew_is_reported_instead_of_wrong_credentials(
    operation: Callable[[Store], object], s3_access: S3Access, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = store_of(s3_access, monkeypatch)
    yesterday = datetime.now(UTC).replace(tzinfo=None) - timedelta(days=1)
    monkeypatch.setattr("botocore.auth.get_current_datetime", lambda *_: yesterday)

    failure = failure_of(store, operation)

    assert failure.reason == "ClockWrong"
    assert "correct the clock of this machine" in str(failure)
    assert "access key" not in str(failure)


def test_object_that_fails_its_checksum_is_reported_as_damaged(s3_server: S3Server) -> None:
    store, point = S3Store(s3_client(), s3_server.access.bucket, "p"), "a" * 64
    for key in ("plan.json", manifest_key(point)):
        store.put(key, b"{}")
        (s3_server.folder / "objects" / s3_server.access.bucket / "p" / key).write_bytes(b"[]")

    of_the_run = failure_of(store, lambda store: store.get("plan.json"))
    of_a_point = failure_of(store, lambda store: PointStore(store).manifests([point]))

    assert (of_the_run.reason, of_a_point.reason) == ("Damaged", "Damaged")
    assert f"{store.uri('plan.json')}: it does not match the checksum" in str(of_the_run)
    assert f"{store.uri(manifest_key(point))}: it does not match the checksum" in str(of_a_point)
    assert f"remove {store.uri(point_root(point))} with everything below it" in str(of_a_point)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (IncompleteReadError(actual_bytes=1, expected_bytes=2), "S3Away"),
        (ResponseParserError("Unable to parse response (not well-formed)"), "StoreRefused"),
    ],
    ids=["truncated response", "not an S3 response"],
)
def test_unreadable_s3_response_is_a_store_error(error: Exception, reason: str) -> None:
    with pytest.raises(NotDurable) as caught, translate_s3_errors("bench", "http://s3"):
        raise error

    assert caught.value.reason == reason


@pytest.mark.parametrize(
    ("status", "code", "reason"),
    [
        (409, "ConditionalRequestConflict", "S3Away"),
        (409, "OperationAborted", "S3Away"),
        (429, "SlowDown", "S3Away"),
        (500, "InternalError", "S3Away"),
        (400, "InvalidRequest", "StoreRefused"),
    ],
)
def test_an_error_that_goes_away_by_itself_is_retryable(status: int, code: str, reason: str) -> None:
    """S3 answers 409 to a plain PUT or DELETE while another operation on the object is in progress."""
    answer: Any = {"Error": {"Code": code, "Message": ""}, "ResponseMetadata": {"HTTPStatusCode": status}}
    with pytest.raises(NotDurable) as caught, translate_s3_errors("bench", "http://s3"):
        raise ClientError(answer, "PutObject")
    assert caught.value.reason == reason


def test_store_retries_until_the_server_is_back(s3_server: S3Server) -> None:
    store = S3Store(s3_client(), s3_server.access.bucket, "p")
    s3_server.stop()
    pauses: list[float] = []

    def pause(seconds: float) -> bool:
        pauses.append(seconds)
        if len(pauses) == 2:
            s3_server.start()
        return False

    RetryingStore(store, RetryPolicy(pause_s=pause)).put("plan.json", b"x")

    assert store.get("plan.json") == b"x"
    assert pauses == [0.5, 1.0]


def test_objects_have_a_sha256_and_a_content_type(s3_store: S3Store, s3_access: S3Access) -> None:
    s3_store.put("report.html", b"<html>")
    upload = s3_store.start_upload("big.parquet")
    for part in (bytes(5 * 1024 * 1024), b"rest"):
        upload.add(part)
    upload.complete()

    client = s3_client()
    bucket, _, prefix = s3_store.uri().removeprefix("s3://").partition("/")
    small = client.head_object(Bucket=bucket, Key=f"{prefix}/report.html", ChecksumMode="ENABLED")
    large = client.head_object(Bucket=bucket, Key=f"{prefix}/big.parquet", ChecksumMode="ENABLED")
    assert small["ContentType"] == "text/html; charset=utf-8"
    assert small["ChecksumSHA256"]
    assert large["ChecksumSHA256"].endswith("-2")  # two parts


def unfinished(store: S3Store) -> list[str]:
    """Keys of the uploads below the store's prefix that are not complete."""
    bucket, _, prefix = store.uri().removeprefix("s3://").partition("/")
    found = s3_client().list_multipart_uploads(Bucket=bucket, Prefix=prefix)
    return [each["Key"].removeprefix(f"{prefix}/") for each in found.get("Uploads", [])]


def test_aborted_upload_leaves_no_parts(s3_store: S3Store) -> None:
    upload, other = s3_store.start_upload("big"), s3_store.start_upload("other")
    upload.add(b"x")
    assert sorted(unfinished(s3_store)) == ["big", "other"]

    upload.abort()
    s3_store.abort_uploads("oth")

    assert unfinished(s3_store) == []
    upload.abort()  # what is gone already is no error
    other.abort()


def test_parts_need_no_checksum_in_the_servers_answer(s3_store: S3Store, monkeypatch: pytest.MonkeyPatch) -> None:
    upload_part = s3_store._bucket.form.client.upload_part
    monkeypatch.setattr(
        s3_store._bucket.form.client, "upload_part", lambda **part: {"ETag": upload_part(**part)["ETag"]}
    )
    upload = s3_store.start_upload("big")
    upload.add(b"rest")
    upload.complete()
    assert s3_store.get("big") == b"rest"


class LosingClient:
    """Passes requests to S3, and loses the answer to the first completion of an upload."""

    def __init__(self, client: Any) -> None:
        self._client, self._lost = client, False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def complete_multipart_upload(self, **request: Any) -> Any:
        answer = self._client.complete_multipart_upload(**request)
        if not self._lost:
            self._lost = True
            raise EndpointConnectionError(endpoint_url="http://s3")
        return answer


def test_completion_whose_answer_was_lost_is_repeated_without_a_conflict(s3_store: S3Store) -> None:
    bucket, _, prefix = s3_store.uri().removeprefix("s3://").partition("/")
    losing: Any = LosingClient(s3_client())
    store = RetryingStore(S3Store(losing, bucket, prefix), RetryPolicy(pause_s=lambda _: False))
    upload = store.start_upload("big")
    for part in (bytes(5 * 1024 * 1024), b"rest"):
        upload.add(part)

    upload.complete()

    assert store.get("big") == bytes(5 * 1024 * 1024) + b"rest"


def refusal(code: str, status: int) -> Any:
    def refuse(*_: Any, **__: Any) -> Any:
        answer: Any = {"Error": {"Code": code, "Message": ""}, "ResponseMetadata": {"HTTPStatusCode": status}}
        raise ClientError(answer, "ListMultipartUploads")

    return refuse


@pytest.mark.parametrize(
    ("code", "status"), [("AccessDenied", 403), ("NotImplemented", 501)], ids=["without the right", "unknown"]
)
def test_uploads_that_may_not_be_listed_are_left_with_a_warning(
    code: str, status: int, s3_store: S3Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(s3_store._bucket.form.client, "get_paginator", refusal(code, status))
    s3_store.abort_uploads("points/")
    assert "unfinished uploads are not removed" in caplog.text


def test_location_contains_bucket_prefix_endpoint_and_region(
    s3_access: S3Access, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3_access.enter(monkeypatch)
    monkeypatch.delenv("AWS_ENDPOINT_URL_S3")
    prefix = uuid.uuid4().hex
    location = f"s3://{s3_access.bucket}/{prefix}/?endpoint={s3_access.endpoint}&region=us-east-1"

    open_store(location).put("a", b"x")

    assert open_store(location).get("a") == b"x"
    assert open_store(location).uri("a") == f"s3://{s3_access.bucket}/{prefix}/a"


@pytest.mark.parametrize(
    ("location", "message"),
    [
        ("s3://", "the bucket is missing"),
        ("s3://bench/p?endpiont=http://x", "unknown parameter 'endpiont'"),
        ("s3://bench/p?endpoint=x:9000", "needs http:// or https://"),
        ("s3://Bu cket_/p", "'Bu cket_' is not a valid bucket name: use 3 to 63 lower-case letters"),
        ("gs://b/p", "results cannot be stored at gs://"),
        ("", "the location of the results is empty"),
    ],
)
def test_invalid_location_is_rejected(location: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        open_store(location)


def test_invalid_endpoint_in_the_environment_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "not a url")

    with pytest.raises(BadInput, match="not a url"):
        open_store("s3://bucket/prefix")


def test_single_object_is_read_by_uri(s3_store: S3Store) -> None:
    s3_store.put("prompts.jsonl", b"{}")

    assert read_object(s3_store.uri("prompts.jsonl")) == b"{}"
    with pytest.raises(BadInput, match="there is no such object"):
        read_object(s3_store.uri("others.jsonl"))
    with pytest.raises(BadInput, match="contains no object key"):
        read_object("s3://bucket")


def test_custom_endpoint_uses_path_style_and_amazon_virtual_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "k")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")

    def url(endpoint: str | None) -> str:
        client = s3_client(endpoint, "eu-west-1")
        return client.generate_presigned_url("get_object", Params={"Bucket": "bench", "Key": "k"})

    assert url("http://minio.svc:9000").startswith("http://minio.svc:9000/bench/k?")
    assert url(None).startswith("https://bench.s3.")


@pytest.mark.s3
def test_objects_and_listings_above_the_limits_are_not_read(s3_store: S3Store, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3):
        s3_store.put(f"limits/{number}", b"x" * 11)
    monkeypatch.setattr(s3, "OBJECT_BYTES_MAX", 10)
    monkeypatch.setattr(s3, "FILE_BYTES_MAX", 10)
    monkeypatch.setattr(s3, "KEYS_MAX", 2)
    assert "no such file of a run is" in str(failure_of(s3_store, lambda store: store.get("limits/0")))
    assert "no such file of a run is" in str(failure_of(s3_store, lambda store: store.open("limits/0")))
    assert "more than 2 objects: give the root of one run" in str(
        failure_of(s3_store, lambda store: store.keys("limits/"))
    )
