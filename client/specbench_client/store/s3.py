"""A store in an S3 bucket, with conditional writes, checksums, and multipart uploads for records.

With `If-None-Match: *` the server rejects overwriting, also between independent clients. If the answer
to a write is lost, the repeated write looks like a conflict; then the contents are compared. Only botocore's short
retries happen here; `RetryingStore` handles longer outages.
"""

from __future__ import annotations

import base64
import hashlib
import logging
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, TypedDict

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
from specbench_client.store.folder import translate_os_errors
from specbench_client.store.store import FILE_BYTES_MAX, KEYS_MAX, OBJECT_BYTES_MAX, StoreErrorReason

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client
    from mypy_boto3_s3.type_defs import CompletedPartTypeDef, GetObjectOutputTypeDef

_log = logging.getLogger(__name__)

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
COPY_BYTES = 1024 * 1024
"""Bytes of a download that are in memory."""
_EXISTS_CODES = ("PreconditionFailed", "ConditionalRequestConflict", "412", "409")
_MISSING_CODES = ("NoSuchKey", "404")
_NO_UPLOAD = "NoSuchUpload"


class _ContentType(TypedDict):
    ContentType: str


class _Target(TypedDict):
    Bucket: str
    Key: str


class _MultipartUpload(_Target):
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

    def __init__(self, client: S3Client, bucket: str, prefix: str = "") -> None:
        self._client = client
        self._bucket = bucket
        self._prefix = prefix.strip("/")

    def put(self, key: str, data: bytes) -> None:
        with self._translated_errors():
            try:
                self._client.put_object(
                    Bucket=self._bucket,
                    Key=self._full(key),
                    Body=data,
                    ChecksumAlgorithm="SHA256",
                    IfNoneMatch="*",
                    **_content_type_of(key),
                )
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
        with self._reading(key):
            answer = self._request(key, OBJECT_BYTES_MAX)
            return None if answer is None else answer["Body"].read()

    def open(self, key: str) -> BinaryIO | None:
        with self._reading(key):
            answer = self._request(key, FILE_BYTES_MAX)
            if answer is None:
                return None
            with translate_os_errors(Path(tempfile.gettempdir())):
                file = tempfile.TemporaryFile(prefix="specbench-")  # noqa: SIM115 -- the caller closes it
                try:
                    shutil.copyfileobj(answer["Body"], file, COPY_BYTES)
                    file.seek(0)
                except BaseException:
                    file.close()
                    raise
            return file

    def _request(self, key: str, most: int) -> GetObjectOutputTypeDef | None:
        """Request an object of at most this many bytes; None if it does not exist."""
        try:
            answer = self._client.get_object(Bucket=self._bucket, Key=self._full(key), ChecksumMode="ENABLED")
        except ClientError as error:
            if error.response["Error"]["Code"] in _MISSING_CODES:
                return None
            raise
        if answer["ContentLength"] > most:
            answer["Body"].close()
            what = f"is larger than {most // 2**20} MiB, which no such file of a run is: it is damaged"
            raise NotDurable(f"{self.uri(key)}: {what}", StoreErrorReason.DAMAGED)
        return answer

    @contextmanager
    def _reading(self, key: str) -> Iterator[None]:
        with self._translated_errors():
            try:
                yield
            except FlexibleChecksumError as error:
                what = f"it does not match the checksum that was stored with it ({error})"
                raise NotDurable(
                    f"{self.uri(key)}: {what}; remove it and run again", StoreErrorReason.DAMAGED
                ) from error

    def start_upload(self, key: str) -> S3Upload:
        target: _Target = {"Bucket": self._bucket, "Key": self._full(key)}
        with self._translated_errors():
            started = self._client.create_multipart_upload(
                **target, ChecksumAlgorithm="SHA256", **_content_type_of(key)
            )
        return S3Upload(self._client, {**target, "UploadId": started["UploadId"]})

    def abort_uploads(self, prefix: str) -> None:
        try:
            with self._translated_errors():
                pages = self._client.get_paginator("list_multipart_uploads").paginate(
                    Bucket=self._bucket, Prefix=self._full(prefix)
                )
                for upload in [each for page in pages for each in page.get("Uploads", [])]:
                    self._client.abort_multipart_upload(
                        Bucket=self._bucket, Key=upload["Key"], UploadId=upload["UploadId"]
                    )
        except NotDurable as refused:
            # Its parts only need space, and a rule of the bucket may remove them.
            if refused.reason not in (StoreErrorReason.CREDENTIALS_REFUSED, StoreErrorReason.REFUSED):
                raise
            _log.warning("%s: unfinished uploads are not removed: %s", self.uri(prefix), refused)

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
        return S3Store(self._client, self._bucket, self._full(prefix))

    def _full(self, key: str) -> str:
        return f"{self._prefix}/{key}" if self._prefix and key else self._prefix or key

    def _same_or_conflict(self, key: str, data: bytes) -> None:
        found = self.get(key)
        if found is None:
            raise NotDurable(f"{self.uri(key)} is being written by another client: run again", StoreErrorReason.AWAY)
        if found != data:
            raise NotDurable(_conflict(self.uri(key)), StoreErrorReason.CONFLICT)

    def _translated_errors(self) -> AbstractContextManager[None]:
        return translate_s3_errors(self._bucket, self._client.meta.endpoint_url)


class S3Upload:
    """A multipart upload, see `Upload`. Its parts stay in the bucket until it is completed or aborted."""

    def __init__(self, client: S3Client, upload: _MultipartUpload) -> None:
        self._client, self._upload = client, upload
        self._parts: list[CompletedPartTypeDef] = []

    def add(self, part: bytes) -> None:
        number = len(self._parts) + 1
        # The answers of some servers lack the checksum.
        sha256 = base64.b64encode(hashlib.sha256(part).digest()).decode()
        with self._translated_errors():
            answer = self._client.upload_part(**self._upload, PartNumber=number, Body=part, ChecksumSHA256=sha256)
        self._parts.append({"PartNumber": number, "ETag": answer["ETag"], "ChecksumSHA256": sha256})

    def complete(self) -> None:
        with self._translated_errors():
            try:
                self._client.complete_multipart_upload(
                    **self._upload, MultipartUpload={"Parts": self._parts}, IfNoneMatch="*"
                )
            except ClientError as error:
                if error.response["Error"]["Code"] not in (*_EXISTS_CODES, _NO_UPLOAD):
                    raise
                self._raise_unless_stored(error)

    def _raise_unless_stored(self, error: ClientError) -> None:
        """Accept an error that follows a completion whose answer was lost: the object then has our checksum."""
        uri = f"s3://{self._upload['Bucket']}/{self._upload['Key']}"
        try:
            found = self._client.head_object(
                Bucket=self._upload["Bucket"], Key=self._upload["Key"], ChecksumMode="ENABLED"
            )
        except ClientError as missing:
            if missing.response["Error"]["Code"] not in _MISSING_CODES:
                raise
            if error.response["Error"]["Code"] == _NO_UPLOAD:
                what = "another client, or a rule of the bucket, aborted its upload: run again"
                raise NotDurable(f"{uri}: {what}", StoreErrorReason.REFUSED) from error
            raise NotDurable(f"{uri} is being written by another client: run again", StoreErrorReason.AWAY) from error
        if found.get("ChecksumSHA256") != self._checksum():
            raise NotDurable(_conflict(uri), StoreErrorReason.CONFLICT) from error

    def _checksum(self) -> str:
        """Return the SHA-256 that S3 gives an object of several parts: of the parts' own, and their number."""
        each = b"".join(base64.b64decode(part["ChecksumSHA256"]) for part in self._parts)
        return f"{base64.b64encode(hashlib.sha256(each).digest()).decode()}-{len(self._parts)}"

    def abort(self) -> None:
        try:
            self._client.abort_multipart_upload(**self._upload)
        except (BotoCoreError, ClientError) as error:
            _log.warning("the parts of %s still use space: %s", self._upload["Key"], error)

    def _translated_errors(self) -> AbstractContextManager[None]:
        return translate_s3_errors(self._upload["Bucket"], self._client.meta.endpoint_url)


def _conflict(uri: str) -> str:
    return (
        f"{uri} already exists with other content and is never overwritten: another client wrote it, or the prefix"
        " belongs to another run; choose another prefix"
    )


def _content_type_of(key: str) -> _ContentType:
    """Return the content type, so that a browser displays the report instead of saving it."""
    guess = {"json": "application/json", "html": "text/html; charset=utf-8", "csv": "text/csv; charset=utf-8"}
    return {"ContentType": guess.get(key.rpartition(".")[2], "application/octet-stream")}
