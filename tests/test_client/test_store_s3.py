"""What only S3 can do to us, from a real server: each refusal has its own reason and says what to do."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from botocore.exceptions import IncompleteReadError
from botocore.parsers import ResponseParserError

from specbench_api.outcome.layout import manifest_key, point_root
from specbench_client.errors import BadInput, NotDurable
from specbench_client.store.locations import open_store, read_object
from specbench_client.store.points import read_manifests
from specbench_client.store.s3 import S3Store, s3_client, translate_s3_errors
from specbench_client.store.store import RetryingStore, RetryPolicy, Store
from specbench_testing.ports import free_port
from specbench_testing.s3 import S3Access, S3Server

OPERATIONS: dict[str, Callable[[Store], object]] = {
    "put": lambda store: store.put("plan.json", b"x"),
    "put in parts": lambda store: store.put("big", bytes(6 * 1024 * 1024)),
    "replace": lambda store: store.replace("progress.json", b"x"),
    "get": lambda store: store.get("plan.json"),
    "keys": lambda store: store.keys("points/"),
}
operations = pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)


def store_of(access: S3Access, monkeypatch: pytest.MonkeyPatch) -> S3Store:
    access.enter(monkeypatch)
    return S3Store(s3_client(), access.bucket, "p", multipart_bytes=5 * 1024 * 1024)


def refusal(store: Store, operation: Callable[[Store], object]) -> NotDurable:
    with pytest.raises(NotDurable) as refused:
        operation(store)
    return refused.value


@operations
def test_a_bucket_that_does_not_exist_is_named(
    operation: Callable[[Store], object], s3_access: S3Access, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = refusal(store_of(replace(s3_access, bucket="no-such-bucket"), monkeypatch), operation)

    assert refused.reason == "BucketMissing"
    assert "'no-such-bucket' does not exist" in str(refused)
    assert "create it" in str(refused)


@operations
@pytest.mark.parametrize("field", ["key", "secret"])
def test_wrong_credentials_are_told_as_such(
    field: str, operation: Callable[[Store], object], s3_access: S3Access, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = replace(s3_access, key="WRONG") if field == "key" else replace(s3_access, secret="WRONG")

    refused = refusal(store_of(wrong, monkeypatch), operation)

    assert refused.reason == "CredentialsRefused"
    assert "check the access key" in str(refused)


@operations
def test_no_credentials_at_all_are_told_as_such(
    operation: Callable[[Store], object], s3_access: S3Access, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3_access.enter(monkeypatch)
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")

    refused = refusal(S3Store(s3_client(), s3_access.bucket, "p"), operation)

    assert refused.reason == "CredentialsRefused"
    assert "AWS_ACCESS_KEY_ID" in str(refused)


@operations
def test_an_endpoint_where_nobody_listens_is_away(
    operation: Callable[[Store], object], s3_access: S3Access, monkeypatch: pytest.MonkeyPatch
) -> None:
    nobody = replace(s3_access, endpoint=f"http://127.0.0.1:{free_port()}")

    refused = refusal(store_of(nobody, monkeypatch), operation)

    assert refused.reason == "S3Away"
    assert nobody.endpoint in str(refused)


@operations
def test_a_clock_that_is_off_is_named_and_not_the_credentials(
    operation: Callable[[Store], object], s3_access: S3Access, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = store_of(s3_access, monkeypatch)
    yesterday = datetime.now(UTC).replace(tzinfo=None) - timedelta(days=1)
    monkeypatch.setattr("botocore.auth.get_current_datetime", lambda *_: yesterday)

    refused = refusal(store, operation)

    assert refused.reason == "ClockWrong"
    assert "correct the clock of this machine" in str(refused)
    assert "access key" not in str(refused)


def test_an_object_that_is_not_what_was_stored_is_named_as_damaged(s3_server: S3Server) -> None:
    store, point = S3Store(s3_client(), s3_server.access.bucket, "p"), "a" * 64
    for key in ("plan.json", manifest_key(point)):
        store.put(key, b"{}")
        (s3_server.folder / "objects" / s3_server.access.bucket / "p" / key).write_bytes(b"[]")

    of_the_run = refusal(store, lambda store: store.get("plan.json"))
    of_a_point = refusal(store, lambda store: read_manifests(store, [point]))

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
    ids=["an answer that was cut", "an answer that is no S3's"],
)
def test_an_answer_that_cannot_be_read_is_no_bug_of_ours(error: Exception, reason: str) -> None:
    with pytest.raises(NotDurable) as refused, translate_s3_errors("bench", "http://s3"):
        raise error

    assert refused.value.reason == reason


def test_a_server_that_comes_back_is_waited_for(s3_server: S3Server) -> None:
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


def test_objects_carry_their_sha256_and_a_type_that_browsers_show(s3_store: S3Store, s3_access: S3Access) -> None:
    s3_store.put("report.html", b"<html>")
    s3_store.put("big.parquet", bytes(6 * 1024 * 1024))

    client = s3_client()
    bucket, _, prefix = s3_store.uri().removeprefix("s3://").partition("/")
    small = client.head_object(Bucket=bucket, Key=f"{prefix}/report.html", ChecksumMode="ENABLED")
    large = client.head_object(Bucket=bucket, Key=f"{prefix}/big.parquet", ChecksumMode="ENABLED")
    assert small["ContentType"] == "text/html; charset=utf-8"
    assert small["ChecksumSHA256"]
    assert large["ChecksumSHA256"].endswith("-2")  # two parts


def test_parts_of_a_refused_upload_are_given_back(s3_store: S3Store) -> None:
    s3_store.put("big", bytes(6 * 1024 * 1024))

    with pytest.raises(NotDurable):
        s3_store.put("big", bytes(7 * 1024 * 1024))

    bucket = s3_store.uri().removeprefix("s3://").partition("/")[0]
    assert "Uploads" not in s3_client().list_multipart_uploads(Bucket=bucket)


def test_a_location_names_bucket_prefix_endpoint_and_region(
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
    ("location", "said"),
    [
        ("s3://", "the bucket is missing"),
        ("s3://bench/p?endpiont=http://x", "unknown parameter 'endpiont'"),
        ("s3://bench/p?endpoint=x:9000", "needs http:// or https://"),
        ("s3://Bu cket_/p", "'Bu cket_' is not a valid bucket name: use 3 to 63 lower-case letters"),
        ("gs://b/p", "results cannot be stored at gs://"),
        ("", "the location of the results is empty"),
    ],
)
def test_a_location_that_is_none_is_bad_input(location: str, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        open_store(location)


def test_an_endpoint_of_the_environment_that_is_no_url_is_bad_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "not a url")

    with pytest.raises(BadInput, match="not a url"):
        open_store("s3://bucket/prefix")


def test_one_object_is_read_by_its_uri(s3_store: S3Store) -> None:
    s3_store.put("prompts.jsonl", b"{}")

    assert read_object(s3_store.uri("prompts.jsonl")) == b"{}"
    with pytest.raises(BadInput, match="there is no such object"):
        read_object(s3_store.uri("others.jsonl"))
    with pytest.raises(BadInput, match="contains no object key"):
        read_object("s3://bucket")


def test_a_server_of_ones_own_is_asked_by_path_and_amazon_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "k")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")

    def url(endpoint: str | None) -> str:
        client = s3_client(endpoint, "eu-west-1")
        return client.generate_presigned_url("get_object", Params={"Bucket": "bench", "Key": "k"})

    assert url("http://minio.svc:9000").startswith("http://minio.svc:9000/bench/k?")
    assert url(None).startswith("https://bench.s3.")
