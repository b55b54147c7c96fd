"""A store in an S3 bucket, with conditional writes, checksums, and multipart uploads for large objects.

With `If-None-Match: *` the server rejects overwriting, also between independent clients. If the answer
to a write is lost, the repeated write looks like a conflict; then the contents are compared. Only botocore's short
retries happen here; `RetryingStore` handles longer outages.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, TypedDict

import boto3
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    CredentialRetrievalError,
    FlexibleChecksumError,
    HTTPClientError,
    IncompleteReadError,
    NoCredentialsError,
    PartialCredentialsError,
    ResponseStreamingError,
    SSLError,
    TokenRetrievalError,
)
from botocore.exceptions import (
    ConnectionError as UnreachableError,
)
from botocore.parsers import ResponseParserError

from specbench_client.errors import NotDurable
from specbench_client.store.store import KEYS_MAX, OBJECT_BYTES_MAX, StoreErrorReason

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client
    from mypy_boto3_s3.type_defs import CompletedPartTypeDef


# Servers use many codes for rejected credentials. Nearly all come with status 401 or 403, but not these; the first is
# versitygw's, with 404.
_CREDENTIAL_CODES = frozenset({
    "XAdminUserNotFound", "InvalidAccessKeyId", "ExpiredToken", "InvalidToken", "TokenRefreshRequired",
    "AuthorizationHeaderMalformed",
})  # fmt: skip
_STORAGE_FULL_CODES = frozenset(
    {"XMinioStorageFull", "InsufficientStorage", "QuotaExceeded", "XAmzQuotaExceeded", "507"}
)
_CLOCK_SKEW_CODES = frozenset({"RequestTimeTooSkewed", "RequestExpired"})
_RETRYABLE_CODES = frozenset({
    "SlowDown", "Throttling", "RequestTimeout", "RequestTimeoutException", "TooManyRequests", "429",
    "OperationAborted", "ConditionalRequestConflict",
})  # fmt: skip
"""With the last two, S3 answers 409: another operation on the object is in progress, also for a plain PUT or DELETE."""
_CREDENTIAL_ERRORS = (NoCredentialsError, PartialCredentialsError, CredentialRetrievalError, TokenRetrievalError)
_CONNECTION_ERRORS = (UnreachableError, HTTPClientError, ResponseStreamingError, IncompleteReadError)


@contextmanager
def translate_s3_errors(bucket: str, endpoint: str) -> Iterator[None]:
    """Raise NotDurable for whatever boto3 raises inside."""
    try:
        yield
    except (BotoCoreError, ClientError, ResponseParserError) as error:
        raise store_error_of(error, bucket, endpoint) from error


def store_error_of(error: BotoCoreError | ClientError | ResponseParserError, bucket: str, endpoint: str) -> NotDurable:
    """Return the NotDurable for a boto3 error, with the server's message. It never contains keys or secrets."""
    if isinstance(error, ClientError):
        return _response_error(error, bucket, endpoint)
    if isinstance(error, _CREDENTIAL_ERRORS):
        remedy = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or give the service account a cloud identity"
        return NotDurable(
            f"no usable credentials for s3://{bucket}: {error}; {remedy}", StoreErrorReason.CREDENTIALS_REFUSED
        )
    if isinstance(error, SSLError):
        remedy = "if its certificate is self-signed, set AWS_CA_BUNDLE to the file of its authority"
        return NotDurable(f"no TLS with {endpoint}: {error}; {remedy}", StoreErrorReason.REFUSED)
    if isinstance(error, _CONNECTION_ERRORS):
        remedy = "check the endpoint (AWS_ENDPOINT_URL_S3) and the network, then run again; nothing was lost"
        return NotDurable(f"{endpoint} cannot be reached: {error}; {remedy}", StoreErrorReason.AWAY)
    return NotDurable(f"s3://{bucket} at {endpoint}: {error}", StoreErrorReason.REFUSED)


def _response_error(error: ClientError, bucket: str, endpoint: str) -> NotDurable:
    code = str(error.response.get("Error", {}).get("Code", ""))
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    where = f"s3://{bucket} at {endpoint}"
    if code == "NoSuchBucket" or (code == "404" and error.operation_name == "HeadBucket"):
        remedy = "create it, or correct spec.results.s3.bucket; buckets are never created by specbench"
        return NotDurable(
            f"the bucket {bucket!r} does not exist at {endpoint}: {remedy}", StoreErrorReason.BUCKET_MISSING
        )
    if code in _CLOCK_SKEW_CODES:  # These come with status 403 too, but the credentials are not the cause.
        remedy = "correct the clock of this machine or of the server"
        return NotDurable(
            f"the clocks of {where} and of this machine differ ({error}): {remedy}", StoreErrorReason.CLOCK_WRONG
        )
    if code in _CREDENTIAL_CODES or status in (401, 403):
        remedy = "check the access key, its secret, and that it may read, write and list this bucket"
        return NotDurable(f"{where} rejected the credentials ({error}): {remedy}", StoreErrorReason.CREDENTIALS_REFUSED)
    return _server_error(error, code, status, where)


def _server_error(error: ClientError, code: str, status: int, where: str) -> NotDurable:
    """Return the NotDurable for an error of the server itself."""
    if code in _STORAGE_FULL_CODES:
        return NotDurable(
            f"{where} has no space left ({error}): free some space and run again", StoreErrorReason.DISK_FULL
        )
    if code in _RETRYABLE_CODES or (status >= 500 and status != 501):
        return NotDurable(f"{where} is failing ({error}): run again when it works", StoreErrorReason.AWAY)
    if status == 501:
        remedy = "use a server with conditional writes (If-None-Match) and SHA-256 checksums"
        return NotDurable(
            f"{where} does not support a request that specbench needs ({error}): {remedy}", StoreErrorReason.REFUSED
        )
    return NotDurable(f"{where}: {error}", StoreErrorReason.REFUSED)


DEFAULT_REGION = "us-east-1"
MULTIPART_BYTES = 16 * 1024 * 1024
"""Objects of at least this size are uploaded in parts; S3 requires parts of at least 5 MiB."""
_EXISTS_CODES = ("PreconditionFailed", "ConditionalRequestConflict", "412", "409")
_MISSING_CODES = ("NoSuchKey", "404")


class _ContentType(TypedDict):
    ContentType: str


class _MultipartUpload(TypedDict):
    Bucket: str
    Key: str
    UploadId: str


_CONFIG = Config(
    connect_timeout=5,
    read_timeout=60,
    retries={"mode": "standard", "max_attempts": 2},
    request_checksum_calculation="when_supported",
    response_checksum_validation="when_supported",
)


def s3_client(endpoint: str | None = None, region: str | None = None) -> S3Client:
    """Return a client configured by the standard AWS environment; `endpoint` and `region` override it."""
    session = boto3.Session()
    where = region or os.environ.get("AWS_REGION") or session.region_name or DEFAULT_REGION
    client = session.client("s3", endpoint_url=endpoint, region_name=where, config=_CONFIG)
    chosen = session._session.get_scoped_config().get("s3", {})  # noqa: SLF001 -- boto3 has no public API for it
    if client.meta.endpoint_url.endswith("amazonaws.com") or "addressing_style" in chosen:
        return client
    # Self-hosted servers rarely have a DNS name for each bucket.
    by_path = _CONFIG.merge(Config(s3={"addressing_style": "path"}))
    return session.client("s3", endpoint_url=endpoint, region_name=where, config=by_path)


class S3Store:
    """Objects of a bucket below a prefix. Thread-safe, because boto3's clients are."""

    def __init__(self, client: S3Client, bucket: str, prefix: str = "", multipart_bytes: int = MULTIPART_BYTES) -> None:
        self._client = client
        self._bucket = bucket
        self._prefix = prefix.strip("/")
        self._multipart_bytes = multipart_bytes

    def put(self, key: str, data: bytes) -> None:
        with self._translated_errors():
            try:
                self._create(self._full(key), data)
            except ClientError as error:
                if error.response["Error"]["Code"] not in _EXISTS_CODES:
                    raise
                self._same_or_conflict(key, data)

    def replace(self, key: str, data: bytes) -> None:
        with self._translated_errors():
            self._client.put_object(
                Bucket=self._bucket, Key=self._full(key), Body=data, ChecksumAlgorithm="SHA256", **_content_type_of(key)
            )

    def get(self, key: str) -> bytes | None:
        with self._translated_errors():
            try:
                answer = self._client.get_object(Bucket=self._bucket, Key=self._full(key), ChecksumMode="ENABLED")
                if answer["ContentLength"] > OBJECT_BYTES_MAX:
                    answer["Body"].close()
                    what = f"is larger than {OBJECT_BYTES_MAX // 2**20} MiB, which no file of a run is: it is damaged"
                    raise NotDurable(f"{self.uri(key)}: {what}", StoreErrorReason.DAMAGED)
                return answer["Body"].read()
            except ClientError as error:
                if error.response["Error"]["Code"] in _MISSING_CODES:
                    return None
                raise
            except FlexibleChecksumError as error:
                what = f"it does not match the checksum that was stored with it ({error})"
                raise NotDurable(
                    f"{self.uri(key)}: {what}; remove it and run again", StoreErrorReason.DAMAGED
                ) from error

    def remove(self, key: str) -> None:
        with self._translated_errors():
            self._client.delete_object(Bucket=self._bucket, Key=self._full(key))

    def keys(self, prefix: str = "") -> list[str]:
        root = f"{self._prefix}/" if self._prefix else ""
        keys: list[str] = []
        with self._translated_errors():
            pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=self._bucket, Prefix=root + prefix)
            for page in pages:
                keys += [entry["Key"].removeprefix(root) for entry in page.get("Contents", [])]
                if len(keys) > KEYS_MAX:
                    what = f"more than {KEYS_MAX:,} objects: give the root of one run"
                    raise NotDurable(f"{self.uri(prefix)}: {what}", StoreErrorReason.REFUSED)
        return sorted(keys)

    def uri(self, key: str = "") -> str:
        return f"s3://{self._bucket}/{self._full(key)}".rstrip("/")

    def below(self, prefix: str) -> S3Store:
        return S3Store(self._client, self._bucket, self._full(prefix), self._multipart_bytes)

    def _full(self, key: str) -> str:
        return f"{self._prefix}/{key}" if self._prefix and key else self._prefix or key

    def _create(self, key: str, data: bytes) -> None:
        if len(data) >= self._multipart_bytes:
            self._create_in_parts(key, data)
            return
        self._client.put_object(
            Bucket=self._bucket,
            Key=key,
            Body=data,
            ChecksumAlgorithm="SHA256",
            IfNoneMatch="*",
            **_content_type_of(key),
        )

    def _create_in_parts(self, key: str, data: bytes) -> None:
        started = self._client.create_multipart_upload(
            Bucket=self._bucket, Key=key, ChecksumAlgorithm="SHA256", **_content_type_of(key)
        )
        upload: _MultipartUpload = {"Bucket": self._bucket, "Key": key, "UploadId": started["UploadId"]}
        try:
            parts = self._upload_parts(upload, data)
            self._client.complete_multipart_upload(**upload, MultipartUpload={"Parts": parts}, IfNoneMatch="*")
        except BaseException as failure:
            self._abort(upload, failure)
            raise

    def _upload_parts(self, upload: _MultipartUpload, data: bytes) -> list[CompletedPartTypeDef]:
        size, view = self._multipart_bytes, memoryview(data)
        parts: list[CompletedPartTypeDef] = []
        for number, start in enumerate(range(0, len(data), size), start=1):
            answer = self._client.upload_part(
                **upload, PartNumber=number, Body=bytes(view[start : start + size]), ChecksumAlgorithm="SHA256"
            )
            part = {"PartNumber": number, "ETag": answer["ETag"], "ChecksumSHA256": answer["ChecksumSHA256"]}
            parts.append(part)  # type: ignore[arg-type]
        return parts

    def _abort(self, upload: _MultipartUpload, failure: BaseException) -> None:
        """Abort the upload, which frees its space. If this fails too, it is added to the first failure as a note."""
        try:
            self._client.abort_multipart_upload(**upload)
        except (BotoCoreError, ClientError) as error:
            failure.add_note(f"the parts of {upload['Key']} still use space: {error}")

    def _same_or_conflict(self, key: str, data: bytes) -> None:
        found = self.get(key)
        if found is None:
            raise NotDurable(f"{self.uri(key)} is being written by another client: run again", StoreErrorReason.AWAY)
        if found != data:
            raise NotDurable(
                f"{self.uri(key)} already exists with other content and is never overwritten: another client wrote it,"
                " or the prefix belongs to another run; choose another prefix",
                StoreErrorReason.CONFLICT,
            )

    def _translated_errors(self) -> AbstractContextManager[None]:
        return translate_s3_errors(self._bucket, self._client.meta.endpoint_url)


def _content_type_of(key: str) -> _ContentType:
    """Return the content type, so that a browser displays the report instead of saving it."""
    guess = {"json": "application/json", "html": "text/html; charset=utf-8", "csv": "text/csv; charset=utf-8"}
    return {"ContentType": guess.get(key.rpartition(".")[2], "application/octet-stream")}
