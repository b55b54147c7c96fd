"""S3 errors from a real server: each has its own reason and a remedy."""

from __future__ import annotations

import base64
import hashlib
import uuid
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError, IncompleteReadError
from botocore.parsers import ResponseParserError

from specbench_api.outcome.layout import CHECK_OBJECT, CHECK_UPLOAD, manifest_key, point_root
from specbench_client.errors import BadInput, NotDurable
from specbench_client.store import s3
from specbench_client.store.locations import open_store, read_object
from specbench_client.store.points import PointStore
from specbench_client.store.retrying import RetryingStore, RetryPolicy
from specbench_client.store.s3 import S3Store, s3_client, translate_s3_errors
from specbench_client.store.store import Store, check_s3_server
from specbench_testing.ports import free_port
from specbench_testing.s3 import Habit, IgnoringConditions, S3Access, S3Server, s3_answer, store_with_habit

OPERATIONS: dict[str, Callable[[Store], object]] = {
    "put": lambda store: store.put("plan.json", b"x"),
    "upload": lambda store: store.start_upload("big"),
    "replace": lambda store: store.replace("progress.json", b"x"),
    "get": lambda store: store.get("plan.json"),
    "open": lambda store: store.open("plan.json"),
    "keys": lambda store: store.keys("points/"),
}
UNREACHABLE = f"http://127.0.0.1:{free_port()}"


def store_of(access: S3Access, monkeypatch: pytest.MonkeyPatch) -> S3Store:
    access.enter(monkeypatch)
    return S3Store(s3_client(), access.bucket, "p")


def failure_of(store: Store, operation: Callable[[Store], object]) -> NotDurable:
    with pytest.raises(NotDurable) as caught:
        operation(store)
    return caught.value


def failures_of(store: Store) -> list[NotDurable]:
    """Return how each operation fails: with one client, whose making takes longer than they do."""
    return [failure_of(store, operation) for operation in OPERATIONS.values()]


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
def test_wrong_access_is_reported(
    wrong: dict[str, str], reason: str, words: str, s3_access: S3Access, monkeypatch: pytest.MonkeyPatch
) -> None:
    for failure in failures_of(store_of(replace(s3_access, **wrong), monkeypatch)):
        assert failure.reason == reason
        assert words in str(failure)


def test_missing_credentials_are_reported(s3_access: S3Access, monkeypatch: pytest.MonkeyPatch) -> None:
    s3_access.enter(monkeypatch)
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")

    for failure in failures_of(S3Store(s3_client(), s3_access.bucket, "p")):
        assert failure.reason == "CredentialsRefused"
        assert "AWS_ACCESS_KEY_ID" in str(failure)


def test_clock_skew_is_reported_instead_of_wrong_credentials(
    s3_access: S3Access, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = store_of(s3_access, monkeypatch)
    yesterday = datetime.now(UTC).replace(tzinfo=None) - timedelta(days=1)
    monkeypatch.setattr("botocore.auth.get_current_datetime", lambda *_: yesterday)

    for failure in failures_of(store):
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
        (429, "RequestLimitExceeded", "S3Away"),
        (403, "QuotaExceeded", "DiskFull"),
        (400, "XMinioAdminBucketQuotaExceeded", "DiskFull"),
        (413, "413", "StoreRefused"),
        (500, "InternalError", "S3Away"),
        (400, "InvalidRequest", "StoreRefused"),
    ],
)
def test_an_error_of_the_server_itself_has_its_reason(status: int, code: str, reason: str) -> None:
    """S3 answers 409 to a plain PUT or DELETE while another operation on the object is in progress."""
    answer: Any = {"Error": {"Code": code, "Message": ""}, "ResponseMetadata": {"HTTPStatusCode": status}}
    with pytest.raises(NotDurable) as caught, translate_s3_errors("bench", "http://s3"):
        raise ClientError(answer, "PutObject")
    assert caught.value.reason == reason
    assert ("client_max_body_size" in str(caught.value)) is (status == 413)


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ("the region 'us-east-1' is wrong; expecting 'eu-west-1'", "StoreRefused"),
        ("a non-empty Access Key (AKID) must be provided", "CredentialsRefused"),
    ],
)
def test_a_wrong_region_is_not_taken_for_a_wrong_key(message: str, reason: str) -> None:
    answer: Any = {
        "Error": {"Code": "AuthorizationHeaderMalformed", "Message": message},
        "ResponseMetadata": {"HTTPStatusCode": 400},
    }
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
    upload_part = s3_store.bucket.form.client.upload_part
    monkeypatch.setattr(
        s3_store.bucket.form.client, "upload_part", lambda **part: {"ETag": upload_part(**part)["ETag"]}
    )
    upload = s3_store.start_upload("big")
    upload.add(b"rest")
    upload.complete()
    assert s3_store.get("big") == b"rest"


class LosingClient:
    """Passes requests to S3, and loses the answer to the first one of an operation."""

    def __init__(self, client: Any, operation: str) -> None:
        self._client, self._operation = client, operation

    def __getattr__(self, name: str) -> Any:
        return self._lose if name == self._operation else getattr(self._client, name)

    def _lose(self, **request: Any) -> Any:
        name, self._operation = self._operation, ""
        getattr(self._client, name)(**request)
        raise EndpointConnectionError(endpoint_url="http://s3")


def losing_store(store: S3Store, operation: str) -> RetryingStore:
    bucket, _, prefix = store.uri().removeprefix("s3://").partition("/")
    losing: Any = LosingClient(s3_client(), operation)
    return RetryingStore(S3Store(losing, bucket, prefix), RetryPolicy(pause_s=lambda _: False))


@pytest.mark.parametrize("operation", ["upload_part", "complete_multipart_upload"])
def test_a_step_of_an_upload_whose_answer_was_lost_is_repeated_without_a_conflict(
    operation: str, s3_store: S3Store
) -> None:
    store = losing_store(s3_store, operation)
    upload = store.start_upload("big")
    for part in (bytes(5 * 1024 * 1024), b"rest"):
        upload.add(part)

    upload.complete()

    assert store.get("big") == bytes(5 * 1024 * 1024) + b"rest"
    assert unfinished(s3_store) == []


def test_an_upload_is_accepted_beside_equal_content_only(s3_store: S3Store) -> None:
    def upload(content: bytes) -> None:
        upload = s3_store.start_upload("big")
        upload.add(content)
        try:
            upload.complete()
        finally:
            upload.abort()

    upload(b"one")
    upload(b"one")
    with pytest.raises(NotDurable) as caught:
        upload(b"two")

    assert caught.value.reason == "Conflict"
    assert (s3_store.get("big"), unfinished(s3_store)) == (b"one", [])


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
    monkeypatch.setattr(s3_store.bucket.form.client, "get_paginator", refusal(code, status))
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


# -- servers with habits -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("endpoint", ["http://s3.test", "https://s3.test"])
def test_bodies_have_signed_checksums_in_headers_and_no_trailers(
    endpoint: str, s3_access: S3Access, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[Any] = []

    def answer(request: Any, _: object) -> Any:
        sent.append(request)
        return s3_answer(request, 200, ETag='"tag"')

    store = store_with_habit(answer, s3_access, monkeypatch, endpoint=endpoint)
    store.put("object", b"body")
    store.replace("object", b"body")
    s3.S3Upload(store, "upload", {"Key": "upload", "UploadId": "id"}).add(b"body")

    for request in sent:
        headers = {
            name: value.decode() if isinstance(value, bytes) else value for name, value in request.headers.items()
        }
        assert headers["X-Amz-Content-SHA256"] == hashlib.sha256(b"body").hexdigest()
        assert base64.b64decode(headers["x-amz-checksum-sha256"]) == hashlib.sha256(b"body").digest()
        assert (headers["Content-Length"], request.body.read()) == ("4", b"body")
        assert not {"X-Amz-Trailer", "Content-Encoding", "Transfer-Encoding"} & set(headers)
    assert len(sent) == 3


def refuses(code: str, status: int, *names: str) -> Habit:
    """Refuse requests with one of these words in a header's name or in the address."""

    def answer(request: Any, send: Callable[[], Any]) -> Any:
        given = " ".join([request.url, *request.headers]).lower()
        return s3_answer(request, status, code) if any(name in given for name in names) else send()

    return answer


def removes(*names: str) -> Habit:
    """Remove these headers from answers."""

    def answer(request: Any, send: Callable[[], Any]) -> Any:
        response = send()
        for name in [name for name in response.headers if name.lower().startswith(names)]:
            del response.headers[name]
        return response

    return answer


@pytest.mark.parametrize(
    "habit",
    [
        refuses("InvalidRequest", 400, "x-amz-checksum", "x-amz-sdk-checksum"),
        refuses("NotImplemented", 501, "x-amz-checksum-algorithm"),
        refuses("NotImplemented", 501, "list-type=2"),
        refuses("AccessDenied", 403, "uploads&"),
        removes("x-amz-checksum"),
        removes("content-length", "date", "server"),
    ],
    ids=["no checksums", "no checksums of uploads", "no ListObjectsV2", "no list of uploads", "no echo", "chunked"],
)
def test_a_store_works_with_a_server_that_has_this_habit(
    habit: Habit, s3_access: S3Access, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = store_with_habit(habit, s3_access, monkeypatch)

    check_s3_server(store)
    check_s3_server(store)

    assert store.keys() == [CHECK_OBJECT]
    assert unfinished(store) == []
    assert failure_of(store, lambda store: store.put(CHECK_OBJECT, b"other")).reason == "Conflict"
    assert store.get("missing") is None


def test_a_check_without_the_right_to_remove_leaves_the_same_object(
    s3_access: S3Access, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refusing(request: Any, send: Callable[[], Any]) -> Any:
        return s3_answer(request, 403, "AccessDenied") if request.method == "DELETE" else send()

    store = store_with_habit(refusing, s3_access, monkeypatch)

    check_s3_server(store)
    check_s3_server(store)

    assert store.keys() == [CHECK_OBJECT, CHECK_UPLOAD]
    file = store.open(CHECK_UPLOAD)
    assert file is not None
    with file:
        assert len(file.read()) == 5 * 1024 * 1024 + 3


def redirects(request: Any, _: object) -> Any:
    return s3_answer(request, 307, Location="https://other.test/bucket/key")


def serves_pages(request: Any, _: object) -> Any:
    return s3_answer(request, 200)


@pytest.mark.parametrize(
    ("habit", "reason", "words"),
    [
        (refuses("NotImplemented", 501, "if-none-match"), "StoreRefused", "If-None-Match"),
        (refuses("AccessDenied", 403, "x-amz-checksum-sha256"), "CredentialsRefused", "read, write and list"),
        (removes("etag"), "StoreRefused", "an answer has no 'ETag'"),
        (redirects, "StoreRefused", "spec.results.s3.endpoint) to https://other.test"),
        (serves_pages, "StoreRefused", "If-None-Match"),
    ],
    ids=["no conditional writes", "read only", "no ETag", "redirect", "web server"],
)
def test_a_server_that_cannot_store_results_is_refused_before_a_run(
    habit: Habit, reason: str, words: str, s3_access: S3Access, monkeypatch: pytest.MonkeyPatch
) -> None:
    failure = failure_of(store_with_habit(habit, s3_access, monkeypatch), check_s3_server)
    assert failure.reason == reason
    assert words in str(failure)


def test_a_server_that_ignores_conditions_is_refused(tmp_path: Path) -> None:
    failure = failure_of(IgnoringConditions(tmp_path), check_s3_server)
    assert failure.reason == "StoreRefused"
    assert "accepted other content although it exists" in str(failure)


@pytest.mark.parametrize(
    "refusal",
    [
        {"status": 403, "code": "AccessDenied", "message": "PathStyleDomainForbidden"},
        {"status": 400, "code": "SecondLevelDomainForbidden", "message": "use a third level domain"},
        {"status": 301, "Location": "https://specbench-tests.s3.test/"},
    ],
    ids=["403", "400", "301"],
)
def test_a_server_without_path_style_is_addressed_by_the_buckets_host(
    refusal: dict[str, Any], s3_access: S3Access, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def answer(request: Any, _: object) -> Any:
        if request.method == "PUT":  # botocore asks for a bucket's region after a redirect
            asked.append(request.url)
        return s3_answer(request, **refusal) if request.url.startswith("http://s3.test") else s3_answer(request, 200)

    store = store_with_habit(answer, s3_access, monkeypatch, endpoint="http://s3.test")
    store.put("a", b"x")
    store.below("below").put("b", b"x")

    root = store.uri().rpartition("/")[2]
    of_bucket = f"http://specbench-tests.s3.test/{root}"
    assert asked == [f"http://s3.test/specbench-tests/{root}/a", f"{of_bucket}/a", f"{of_bucket}/below/b"]


def test_a_failed_request_keeps_its_form_and_the_servers_first_words(
    s3_access: S3Access, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter([(400, "InvalidRequest", "first"), (400, "InvalidRequest", "second")])
    checksums: list[bool] = []

    def answer(request: Any, send: Callable[[], Any]) -> Any:
        checksums.append("x-amz-checksum-sha256" in request.headers)
        found = next(answers, None)
        return s3_answer(request, *found) if found else send()

    store = store_with_habit(answer, s3_access, monkeypatch)

    assert "first" in str(failure_of(store, lambda store: store.put("a", b"x")))
    store.put("b", b"x")

    assert checksums == [True, False, True]


@pytest.mark.parametrize("named", [True, False], ids=["next page named", "not named"])
def test_a_listing_in_pages_is_complete(named: bool, s3_access: S3Access, monkeypatch: pytest.MonkeyPatch) -> None:
    store = store_of(s3_access, monkeypatch).below(uuid.uuid4().hex)
    keys = [f"k{number} &" for number in range(5)]
    for key in keys:
        store.put(key, b"x")
    send = store.bucket.send

    def page(*operation: str, **request: Any) -> Any:
        found = send(*operation, MaxKeys=2, **request)
        return {name: value for name, value in found.items() if named or name != "NextMarker"}

    monkeypatch.setattr(store.bucket, "send", page)

    assert store.keys() == keys


@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        ("AWS_PROFILE", "nope", "The config profile (nope) could not be found"),
        ("AWS_CONFIG_FILE", __file__, "Unable to parse config file"),
        ("AWS_SECRET_ACCESS_KEY", None, "Partial credentials found in env"),
        ("AWS_REGION", "us east", "'us east'"),
    ],
)
def test_invalid_aws_settings_are_bad_input(
    variable: str, value: str | None, words: str, s3_access: S3Access, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3_access.enter(monkeypatch)
    if value is None:
        monkeypatch.delenv(variable)
    else:
        monkeypatch.setenv(variable, value)

    with pytest.raises(BadInput) as caught:
        open_store("s3://bench/prefix")
    assert words in str(caught.value)


def test_a_missing_file_of_authorities_is_named(s3_access: S3Access, monkeypatch: pytest.MonkeyPatch) -> None:
    s3_access.enter(monkeypatch)
    monkeypatch.setenv("AWS_CA_BUNDLE", "/missing/ca.pem")
    store = open_store(f"s3://{s3_access.bucket}/p?endpoint={s3_access.endpoint.replace('http:', 'https:')}")

    failure = failure_of(store, check_s3_server)

    assert failure.reason == "StoreRefused"
    assert "/missing/ca.pem" in str(failure)
