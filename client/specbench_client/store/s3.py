"""A store in an S3 bucket, with conditional writes, checksums, and multipart uploads for records.

With `If-None-Match: *` the server rejects overwriting, also between independent clients. If the answer
to a write is lost, the repeated write looks like a conflict; then the contents are compared. Only botocore's short
retries happen here; `RetryingStore` handles longer outages.

Every server gets the same requests: the body is signed, with its SHA-256 in a header and never in a trailer, and
listings are ListObjects. What a server may refuse all the same, `_RequestForm` leaves out or changes.
"""

from __future__ import annotations

import base64
import hashlib
import logging
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from http import HTTPStatus
from io import BytesIO
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, BinaryIO, Literal
from urllib.parse import urlsplit

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

from specbench_api.outcome.layout import CONDITIONAL_WRITES_NEEDED
from specbench_api.spec.store_endpoints import do_not_redirect, wants_virtual_host
from specbench_client.errors import NotDurable
from specbench_client.store.folder import translate_os_errors
from specbench_client.store.store import (
    FILE_BYTES_MAX,
    KEYS_MAX,
    OBJECT_BYTES_MAX,
    StoreErrorReason,
)

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client

_log = logging.getLogger(__name__)

# Servers use many codes for rejected credentials. Nearly all come with status 401 or 403, but not these; the first is
# versitygw's, with 404.
_CREDENTIAL_CODES = frozenset({
    "XAdminUserNotFound", "InvalidAccessKeyId", "ExpiredToken", "InvalidToken", "TokenRefreshRequired",
    "AuthorizationHeaderMalformed",
})  # fmt: skip
_STORAGE_FULL_CODES = frozenset({
    "XMinioStorageFull", "XMinioAdminBucketQuotaExceeded", "InsufficientStorage", "QuotaExceeded",
    "XAmzQuotaExceeded", "507",
})  # fmt: skip
"""Ceph's QuotaExceeded comes with status 403."""
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
    """Raise NotDurable for whatever boto3 raises inside, and for an answer without a value that S3 requires."""
    try:
        yield
    except (BotoCoreError, ClientError, ResponseParserError) as error:
        raise store_error_of(error, bucket, endpoint) from error
    except KeyError as error:
        what = f"an answer has no {error}: {endpoint} is not an S3 server, or a proxy before it changes answers"
        raise NotDurable(
            f"s3://{bucket}: {what}; give the address of an S3 server", StoreErrorReason.REFUSED
        ) from error


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
        bundle = os.environ.get("AWS_CA_BUNDLE") or os.environ.get("REQUESTS_CA_BUNDLE") or "botocore's own file"
        remedy = (
            f"set AWS_CA_BUNDLE to a file with the authority of its certificate (now it is {bundle}); the endpoint of a"
            " server without TLS begins with http://"
        )
        return NotDurable(f"no TLS with {endpoint}: {error}; {remedy}", StoreErrorReason.REFUSED)
    if isinstance(error, _CONNECTION_ERRORS):
        remedy = (
            "check the endpoint (AWS_ENDPOINT_URL_S3), the network and its proxy (HTTPS_PROXY, NO_PROXY), then run"
            " again; nothing was lost"
        )
        return NotDurable(f"{endpoint} cannot be reached: {error}; {remedy}", StoreErrorReason.AWAY)
    return NotDurable(f"s3://{bucket} at {endpoint}: {error}", StoreErrorReason.REFUSED)


def _response_error(error: ClientError, bucket: str, endpoint: str) -> NotDurable:
    code, status, where = _code(error), _status(error), f"s3://{bucket} at {endpoint}"
    if location := _location(error):
        remedy = f"set the endpoint (AWS_ENDPOINT_URL_S3, or spec.results.s3.endpoint) to {location}"
        return NotDurable(
            f"{where} redirects, and redirects are not followed ({error}): {remedy}", StoreErrorReason.REFUSED
        )
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
    names_region = code == "AuthorizationHeaderMalformed" and "region" in str(error)
    is_refused = code in _CREDENTIAL_CODES or (status in (401, 403) and code not in _STORAGE_FULL_CODES)
    if is_refused and not names_region:
        remedy = "check the access key, its secret, and that it may read, write and list this bucket"
        return NotDurable(f"{where} rejected the credentials ({error}): {remedy}", StoreErrorReason.CREDENTIALS_REFUSED)
    return _server_error(error, code, status, where)


def _server_error(error: ClientError, code: str, status: int, where: str) -> NotDurable:
    """Return the NotDurable for an error of the server itself."""
    if code in _STORAGE_FULL_CODES:
        return NotDurable(f"{where} has no space left ({error}): free some space", StoreErrorReason.DISK_FULL)
    if status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
        remedy = "raise the limit of the server or of the proxy before it (nginx: client_max_body_size)"
        return NotDurable(f"{where} limits the size of an upload ({error}): {remedy}", StoreErrorReason.REFUSED)
    if code in _RETRYABLE_CODES or status == HTTPStatus.TOO_MANY_REQUESTS or (status >= 500 and status != 501):
        return NotDurable(f"{where} is failing ({error}): run again when it works", StoreErrorReason.AWAY)
    if status == HTTPStatus.NOT_IMPLEMENTED:
        conditional = error.operation_name in ("PutObject", "CompleteMultipartUpload")
        remedy = CONDITIONAL_WRITES_NEEDED if conditional else "use another server, or a newer version of it"
        return NotDurable(
            f"{where} does not support a request that specbench needs ({error}): {remedy}", StoreErrorReason.REFUSED
        )
    remedy = "check the bucket, the region, and the endpoint, which is the server's address without the bucket"
    return NotDurable(f"{where}: {error}: {remedy}", StoreErrorReason.REFUSED)


def _code(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))


def _status(error: ClientError) -> int:
    return error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)


def _location(error: ClientError) -> str:
    """Return scheme and host of the server that a redirect leads to; empty if the error is no redirect."""
    if not 300 <= _status(error) < 400:
        return ""
    parts = urlsplit(error.response["ResponseMetadata"].get("HTTPHeaders", {}).get("location", ""))
    return f"{parts.scheme}://{parts.netloc}" if parts.netloc else "the bucket's own server"


DEFAULT_REGION = "us-east-1"
COPY_BYTES = 1024 * 1024
"""Bytes of a download that are in memory."""
_EXISTS_CODES = ("PreconditionFailed", "ConditionalRequestConflict", "412", "409")
_MISSING_CODES = ("NoSuchKey", "404")
_NO_UPLOAD = "NoSuchUpload"


AddressingStyle = Literal["path", "virtual"]
_CONFIG = Config(
    connect_timeout=5,
    read_timeout=60,
    retries={"mode": "standard", "max_attempts": 2},
    # By default, botocore appends checksums to bodies over TLS (aws-chunked), which many servers reject.
    request_checksum_calculation="when_required",
    response_checksum_validation="when_required",
)


def s3_client(endpoint: str | None = None, region: str | None = None, style: AddressingStyle = "path") -> S3Client:
    """Return a client configured by the standard AWS environment; `endpoint` and `region` override it.

    `style`: how servers other than AWS are addressed, unless AWS_CONFIG_FILE contains an `addressing_style`. Raises
    ValueError, OSError or BotoCoreError for invalid settings.
    """
    session = boto3.Session()
    where = region or os.environ.get("AWS_REGION") or session.region_name or DEFAULT_REGION
    client = session.client("s3", endpoint_url=endpoint, region_name=where, config=_CONFIG)
    configured = vars(client.meta.config)["s3"] or {}
    if not client.meta.endpoint_url.endswith("amazonaws.com") and "addressing_style" not in configured:
        # Self-hosted servers rarely have a DNS name for each bucket.
        config = _CONFIG.merge(Config(s3={"addressing_style": style}))
        client = session.client("s3", endpoint_url=endpoint, region_name=where, config=config)
    client.meta.events.register("before-call.s3.HeadBucket", do_not_redirect)
    return client


# What servers refuse although it is part of S3. It is found by the server's answer, so that nobody must configure it.

_INVALID = (HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_IMPLEMENTED)


@dataclass(frozen=True)
class _RequestForm:
    """How requests are sent. The default form is first; a server that refuses it gets the next ones."""

    client: S3Client
    checksums: bool = True
    """Whether requests have checksums besides the signed SHA-256 of the body, so that the server stores them."""
    style: AddressingStyle = "path"

    def send(self, operation: str, request: dict[str, Any]) -> Any:
        return getattr(self.client, operation)(**(request if self.checksums else _without_checksums(request)))

    def next_after(self, error: ClientError, bucket: str) -> _RequestForm | None:
        """Return the form that a server may accept which answered this error; None if the form is not the cause."""
        where = self.client.meta
        if self.style == "path" and wants_virtual_host(where.endpoint_url, bucket, str(error), _location(error)):
            _log.warning("the server refuses path style, so the bucket is addressed by its host name: %s", error)
            return replace(self, client=s3_client(where.endpoint_url, where.region_name, "virtual"), style="virtual")
        return replace(self, checksums=False) if self.checksums and _status(error) in _INVALID else None


def _without_checksums(value: Any) -> Any:
    """Return the parameters of a request without those of checksums, also in the parts of an upload."""
    if isinstance(value, list):
        return [_without_checksums(each) for each in value]
    if isinstance(value, dict):
        return {name: _without_checksums(each) for name, each in value.items() if not name.startswith("Checksum")}
    return value


class _Bucket:
    """A bucket and the form of requests that its server accepts. Shared by all stores below it."""

    def __init__(self, client: S3Client, name: str) -> None:
        self.name = name
        self.form = _RequestForm(client)

    def send(self, operation: str, **request: Any) -> Any:
        """Send a request to the bucket and return the answer. If its form is refused, another one is kept."""
        form = self.form
        try:
            return form.send(operation, {"Bucket": self.name, **request})
        except ClientError as error:
            other = form.next_after(error, self.name)
            if other is None:
                raise
            self.form = other
            try:
                return self.send(operation, **request)
            except ClientError as further:
                if _status(further) not in _INVALID:
                    raise
                self.form = form  # It was not the reason, and the first answer names the server's reason.
                raise error from None

    def translated_errors(self) -> AbstractContextManager[None]:
        return translate_s3_errors(self.name, self.form.client.meta.endpoint_url)


class S3Store:
    """Objects of a bucket below a prefix. Thread-safe, because boto3's clients are."""

    def __init__(self, client: S3Client | _Bucket, bucket: str, prefix: str = "") -> None:
        self.bucket = client if isinstance(client, _Bucket) else _Bucket(client, bucket)
        self._prefix = prefix.strip("/")

    def put(self, key: str, data: bytes) -> None:
        with self.bucket.translated_errors():
            try:
                self._put(key, data, IfNoneMatch="*")
            except ClientError as error:
                if _code(error) not in _EXISTS_CODES:
                    raise
                self.require_content(key, hashlib.sha256(data).digest())

    def replace(self, key: str, data: bytes) -> None:
        with self.bucket.translated_errors():
            self._put(key, data)

    def _put(self, key: str, data: bytes, **condition: str) -> None:
        self.bucket.send(
            "put_object",
            Key=self._full(key),
            Body=data,
            ChecksumSHA256=_sha256(data),
            **_content_type_of(key),
            **condition,
        )

    def get(self, key: str) -> bytes | None:
        file = BytesIO()
        return file.getvalue() if self._download(key, file, OBJECT_BYTES_MAX) else None

    def open(self, key: str) -> BinaryIO | None:
        with translate_os_errors(Path(tempfile.gettempdir())):
            file = tempfile.TemporaryFile(prefix="specbench-")  # noqa: SIM115 -- the caller closes it
            try:
                if self._download(key, file, FILE_BYTES_MAX):
                    file.seek(0)
                    return file
            except BaseException:
                file.close()
                raise
            file.close()
            return None

    def _download(self, key: str, file: IO[bytes], most: int) -> bool:
        """Copy an object of at most this many bytes to a file; False if it does not exist."""
        with self.bucket.translated_errors():
            try:
                answer = self.bucket.send("get_object", Key=self._full(key), ChecksumMode="ENABLED")
                size = answer.get("ContentLength", 0)  # A chunked answer has none.
                while size <= most and (piece := answer["Body"].read(COPY_BYTES)):
                    size = max(size, file.tell() + file.write(piece))
            except ClientError as error:
                if _code(error) in _MISSING_CODES:
                    return False
                raise
            except FlexibleChecksumError as error:
                what = f"it does not match the checksum that was stored with it ({error}); remove it and run again"
                raise NotDurable(f"{self.uri(key)}: {what}", StoreErrorReason.DAMAGED) from error
            if size > most:
                answer["Body"].close()
                what = f"is larger than {most // 2**20} MiB, which no such file of a run is: it is damaged"
                raise NotDurable(f"{self.uri(key)}: {what}", StoreErrorReason.DAMAGED)
            return True

    def start_upload(self, key: str) -> S3Upload:
        with self.bucket.translated_errors():
            started = self.bucket.send(
                "create_multipart_upload", Key=self._full(key), ChecksumAlgorithm="SHA256", **_content_type_of(key)
            )
            return S3Upload(self, key, {"Key": self._full(key), "UploadId": started["UploadId"]})

    def abort_uploads(self, prefix: str) -> None:
        try:
            with self.bucket.translated_errors():
                client = self.bucket.form.client
                pages = client.get_paginator("list_multipart_uploads").paginate(
                    Bucket=self.bucket.name, Prefix=self._full(prefix)
                )
                for upload in [each for page in pages for each in page.get("Uploads", [])]:
                    client.abort_multipart_upload(
                        Bucket=self.bucket.name, Key=upload["Key"], UploadId=upload["UploadId"]
                    )
        except NotDurable as refused:
            # Its parts only need space, and a rule of the bucket may remove them.
            if refused.reason not in (StoreErrorReason.CREDENTIALS_REFUSED, StoreErrorReason.REFUSED):
                raise
            _log.warning("%s: unfinished uploads are not removed: %s", self.uri(prefix), refused)

    def remove(self, key: str) -> bool:
        try:
            with self.bucket.translated_errors():
                self.bucket.send("delete_object", Key=self._full(key))
        except NotDurable as refused:
            if refused.reason not in (StoreErrorReason.CREDENTIALS_REFUSED, StoreErrorReason.REFUSED):
                raise
            return False
        return True

    def keys(self, prefix: str = "") -> list[str]:
        root = f"{self._prefix}/" if self._prefix else ""
        keys: list[str] = []
        marker: str | None = ""
        while marker is not None:
            with self.bucket.translated_errors():
                # Not ListObjectsV2, which some servers do not have.
                page = self.bucket.send("list_objects", Prefix=root + prefix, Marker=marker)
                found = [entry["Key"] for entry in page.get("Contents", [])]
            keys += [key.removeprefix(root) for key in found]
            if len(keys) > KEYS_MAX:
                what = f"more than {KEYS_MAX:,} objects: give the root of one run"
                raise NotDurable(f"{self.uri(prefix)}: {what}", StoreErrorReason.REFUSED)
            if marker in found:
                what = "the server lists the same objects again: give the address of an S3 server"
                raise NotDurable(f"{self.uri(prefix)}: {what}", StoreErrorReason.REFUSED)
            marker = (page.get("NextMarker") or found[-1]) if page.get("IsTruncated") and found else None
        return sorted(keys)

    def uri(self, key: str = "") -> str:
        return f"s3://{self.bucket.name}/{self._full(key)}".rstrip("/")

    def below(self, prefix: str) -> S3Store:
        return S3Store(self.bucket, self.bucket.name, self._full(prefix))

    def _full(self, key: str) -> str:
        return f"{self._prefix}/{key}" if self._prefix and key else self._prefix or key

    def require_content(self, key: str, sha256: bytes, missing: StoreErrorReason = StoreErrorReason.AWAY) -> None:
        """Accept an object that could not be created, if it has this content: the first answer was lost.

        It is read, because not every server returns checksums, and an ETag need not be one. `missing`: the reason if
        it does not exist. Raises NotDurable.
        """
        found: Any = self.open(key)
        if found is None:
            what = "another client is writing it, or aborted its upload: run again"
            raise NotDurable(f"{self.uri(key)} could not be created: {what}", missing)
        with found:
            if hashlib.file_digest(found, "sha256").digest() != sha256:
                raise NotDurable(_conflict(self.uri(key)), StoreErrorReason.CONFLICT)


class S3Upload:
    """A multipart upload, see `Upload`. Its parts stay in the bucket until it is completed or aborted."""

    def __init__(self, store: S3Store, key: str, upload: Mapping[str, str]) -> None:
        self._store, self._bucket, self._key, self._upload = store, store.bucket, key, upload
        self._parts: list[dict[str, Any]] = []
        self._sha256 = hashlib.sha256()

    def add(self, part: bytes) -> None:
        number, sha256 = len(self._parts) + 1, _sha256(part)
        with self._bucket.translated_errors():
            answer = self._bucket.send(
                "upload_part", **self._upload, PartNumber=number, Body=part, ChecksumSHA256=sha256
            )
            # The checksum is ours, because the answers of some servers lack it.
            self._parts.append({"PartNumber": number, "ETag": answer["ETag"], "ChecksumSHA256": sha256})
        self._sha256.update(part)

    def complete(self) -> None:
        with self._bucket.translated_errors():
            try:
                self._bucket.send(
                    "complete_multipart_upload", **self._upload, MultipartUpload={"Parts": self._parts}, IfNoneMatch="*"
                )
            except ClientError as error:
                if _code(error) not in (*_EXISTS_CODES, _NO_UPLOAD):
                    raise
                missing = StoreErrorReason.REFUSED if _code(error) == _NO_UPLOAD else StoreErrorReason.AWAY
                self._store.require_content(self._key, self._sha256.digest(), missing)
                self.abort()

    def abort(self) -> None:
        try:
            self._bucket.send("abort_multipart_upload", **self._upload)
        except (BotoCoreError, ClientError) as error:
            if not isinstance(error, ClientError) or _code(error) != _NO_UPLOAD:
                _log.warning("the parts of %s still use space: %s", self._upload["Key"], error)


def _sha256(data: bytes) -> str:
    return base64.b64encode(hashlib.sha256(data).digest()).decode()


def _conflict(uri: str) -> str:
    return (
        f"{uri} already exists with other content and is never overwritten: another client wrote it, or the prefix"
        " belongs to another run; choose another prefix"
    )


def _content_type_of(key: str) -> dict[str, str]:
    """Return the content type, so that a browser displays the report instead of saving it."""
    guess = {"json": "application/json", "html": "text/html; charset=utf-8", "csv": "text/csv; charset=utf-8"}
    return {"ContentType": guess.get(key.rpartition(".")[2], "application/octet-stream")}
