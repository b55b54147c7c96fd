"""Access to one S3 bucket within the limits of a look, and the mapping of every error to StoreFailure."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cache, partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import boto3
import botocore.session
from botocore.config import Config
from botocore.exceptions import (
    ClientError,
    CredentialRetrievalError,
    HTTPClientError,
    NoCredentialsError,
    PartialCredentialsError,
    ResponseStreamingError,
    TokenRetrievalError,
)
from botocore.exceptions import (
    ConnectionError as UnreachableError,
)
from botocore.utils import get_environ_proxies
from urllib3.exceptions import HTTPError

from specbench_api.outcome.layout import CHECK_CONTENT, CONDITIONAL_WRITES_NEEDED
from specbench_api.spec.results import S3
from specbench_api.spec.store_endpoints import AddressRule, do_not_redirect, virtual_host, wants_virtual_host
from specbench_operator.cluster.store_session import StoreError, StoreSession, current_look
from specbench_operator.state.run import StoreFailure

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client

_NO_CREDENTIALS = (NoCredentialsError, PartialCredentialsError, CredentialRetrievalError, TokenRetrievalError)
_DENIED = frozenset({"ExpiredToken", "InvalidToken", "XAdminUserNotFound"})
"""Error codes of denied requests that some servers return with status 400 or 404 instead of 401 or 403."""
_UNREACHABLE = (UnreachableError, HTTPClientError, ResponseStreamingError, HTTPError, OSError)
_DENIED_STATUS = (401, 403)
_BUSY = frozenset({"SlowDown", "Throttling", "RequestTimeout", "TooManyRequests", "429"})
_MISSING = frozenset({"NoSuchKey", "404", "NotFound"})
_EXISTS = frozenset({"PreconditionFailed", "ConditionalRequestConflict", "412", "409"})
KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")

PAGE_MAX_BYTES = 2 * 1024 * 1024
"""Maximum size of one page of a listing. A page has at most 1,000 keys of at most 1,024 bytes, and 350 for the rest."""
PAGE_MAX_TAGS = 32 * 1024
"""Maximum number of XML tags of one page: 1,000 rows with every element of S3 have 28,000."""
LISTING_MAX_BYTES = 16 * 1024 * 1024
"""Maximum size of all pages of a listing."""
LISTING_MAX_PAGES = 20
"""Maximum number of pages of a listing: 20,000 keys. A run has at most some hundred points and launches."""
_CODE = re.compile(r"[A-Za-z0-9.]{1,64}")
_T = TypeVar("_T")


@dataclass(frozen=True)
class Listing:
    """The objects directly below a prefix, and the prefixes one level deeper."""

    modified: Mapping[str, datetime]
    """Key → time at which it was stored, by the server's clock."""
    prefixes: tuple[str, ...]


class Bucket:
    """One bucket with one set of credentials, for use within `look_at_store`. Safe for use from several threads."""

    def __init__(
        self,
        s3: S3,
        credentials: Mapping[str, str] | None,
        timeout_s: float,
        addresses: AddressRule = AddressRule.ANY,
    ) -> None:
        self._connect = partial(_client, s3, credentials, timeout_s, addresses)
        self._client = self._connect("path")
        self._style = "path"
        self._written: set[str] = set()
        """Keys with which conditional writes were tried."""
        self._name = s3.bucket
        self._where = s3.endpoint or "AWS"

    def listing(self, prefix: str) -> Listing:
        """List one level. Raises StoreError."""
        modified: dict[str, datetime] = {}
        prefixes: dict[str, None] = {}
        marker = ""
        size_bytes = 0
        for _ in range(LISTING_MAX_PAGES):
            page = self._page(prefix, marker)
            size_bytes += current_look().body_bytes
            if size_bytes > LISTING_MAX_BYTES:
                break
            modified |= {row["Key"]: row["LastModified"] for row in page.get("Contents", [])}
            prefixes |= {row["Prefix"]: None for row in page.get("CommonPrefixes", [])}
            marker = page.get("NextMarker") or max((*modified, *prefixes), default="")
            if not page.get("IsTruncated"):
                return Listing(modified, tuple(prefixes))
        message = (
            f"{self._description}: the listing of {prefix} has more than {LISTING_MAX_PAGES} pages or"
            f" {LISTING_MAX_BYTES // 1024} KiB: remove what specbench did not write there, or use another prefix"
        )
        raise StoreError(StoreFailure("AnswerTooLarge", message, refused=True))

    def has(self, key: str) -> bool:
        """Whether an object with this key exists. Raises StoreError."""
        return self._unless_missing(lambda: self._client.head_object(Bucket=self._name, Key=key), 0) is not None

    def get(self, key: str, max_bytes: int) -> bytes | None:
        """The object's content; None if it does not exist. Raises StoreError, also for a larger object."""

        def request() -> bytes:
            content: bytes = self._client.get_object(Bucket=self._name, Key=key)["Body"].read()
            return content

        return self._unless_missing(request, max_bytes)

    def require_conditional_writes(self, key: str) -> None:
        """Try once whether the server rejects overwriting, with an object that stays there. Raises StoreError."""
        if key in self._written:
            return
        for _ in range(2):
            try:
                self._ask(
                    lambda: self._client.put_object(Bucket=self._name, Key=key, Body=CHECK_CONTENT, IfNoneMatch="*"), 0
                )
            except StoreError as error:
                if not isinstance(error.__cause__, ClientError) or _code(error.__cause__) not in _EXISTS:
                    raise
                self._written.add(key)
                return
        message = f"{self._description} overwrote {key}, which exists: {CONDITIONAL_WRITES_NEEDED}"
        raise StoreError(StoreFailure("StoreRefused", message, refused=True))

    @property
    def _description(self) -> str:
        return f"s3://{self._name} at {self._where}"

    def _page(self, prefix: str, marker: str) -> dict[str, Any]:
        def request() -> dict[str, Any]:
            # Not ListObjectsV2, which some servers do not have.
            page: Any = self._client.list_objects(Bucket=self._name, Prefix=prefix, Delimiter="/", Marker=marker)
            rows, below = page.get("Contents", []), page.get("CommonPrefixes", [])
            if not all("Key" in row and "LastModified" in row for row in rows) or not all(
                "Prefix" in row for row in below
            ):
                raise ValueError("a row of the listing has no key or no time")
            return dict(page)

        return self._ask(request, PAGE_MAX_BYTES, PAGE_MAX_TAGS)

    def _unless_missing(self, request: Callable[[], _T], max_bytes: int) -> _T | None:
        try:
            return self._ask(request, max_bytes)
        except StoreError as error:
            if isinstance(error.__cause__, ClientError) and _code(error.__cause__) in _MISSING:
                return None
            raise

    def _ask(self, request: Callable[[], _T], max_bytes: int, max_tags: int | None = None) -> _T:
        """Send a request and parse the answer. Raises StoreError, whatever the server sends."""
        look = current_look()
        look.body_max_bytes, look.body_max_tags = max_bytes, max_tags
        try:
            return request()
        except StoreError as error:
            failure = error.failure
            raise StoreError(
                StoreFailure(failure.reason, f"{self._description}: {failure.message}", failure.refused)
            ) from error
        # The parsers of botocore raise many types for an invalid answer, RecursionError among them.
        except Exception as error:
            if self._refuses_path_style(error):
                self._style, self._client = "virtual", self._connect("virtual")
                return self._ask(request, max_bytes, max_tags)
            raise StoreError(self._failure(error)) from error

    def _refuses_path_style(self, error: Exception) -> bool:
        if self._style == "virtual" or not isinstance(error, ClientError):
            return False
        location = error.response["ResponseMetadata"].get("HTTPHeaders", {}).get("location", "")
        return wants_virtual_host(self._client.meta.endpoint_url, self._name, str(error), location)

    def _failure(self, error: Exception) -> StoreFailure:
        where = self._description
        if isinstance(error, ClientError):
            return self._failure_of_response(error, where)
        if isinstance(error, _NO_CREDENTIALS):
            remedy = "name a Secret in spec.results.s3.credentialsSecretRef.name, or give the operator a cloud identity"
            return StoreFailure("CredentialsMissing", f"no credentials for {where}: {error}; {remedy}", refused=True)
        if isinstance(error, _UNREACHABLE):
            message = f"{where} cannot be reached: {_cause(error)}; the operator retries automatically"
            return StoreFailure("S3Away", message, refused=False)
        # The text of a parser's error may contain the answer, which is not S3's and not for the status.
        message = f"{where}: the answer is not that of an S3 server ({type(error).__name__}): correct the endpoint"
        return StoreFailure("StoreRefused", message, refused=True)

    def _failure_of_response(self, error: ClientError, where: str) -> StoreFailure:
        code = _code(error)
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        if code == "NoSuchBucket":
            message = f"the bucket {where} does not exist: create it, or correct spec.results.s3.bucket"
            return StoreFailure("BucketMissing", message, refused=True)
        shown = f"HTTP {status} {code}" if _CODE.fullmatch(code) and code != str(status) else f"HTTP {status}"
        if code in _DENIED or status in _DENIED_STATUS:
            remedy = "allow these credentials to list the bucket, and to read and write its objects"
            return StoreFailure("CredentialsRefused", f"{where} denied access: {shown}; {remedy}", refused=True)
        away = code in _BUSY or (status >= 500 and status != HTTPStatus.NOT_IMPLEMENTED)
        remedy = f": {CONDITIONAL_WRITES_NEEDED}" if error.operation_name == "PutObject" and not away else ""
        message = f"{where} answered {shown} to {error.operation_name}{remedy}"
        return StoreFailure("S3Away" if away else "StoreRefused", message, refused=not away)


def _client(
    s3: S3,
    credentials: Mapping[str, str] | None,
    timeout_s: float,
    addresses: AddressRule,
    style: Literal["path", "virtual"],
) -> S3Client:
    keys: dict[str, Any] = {}
    if credentials is not None:
        names = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")
        keys = dict(zip(names, (credentials.get(key) for key in KEYS), strict=True))
    config = Config(
        connect_timeout=timeout_s,
        read_timeout=timeout_s,
        retries={"mode": "standard", "total_max_attempts": 2},
        request_checksum_calculation="when_required",
        # Servers other than AWS rarely have a DNS name per bucket.
        s3={"addressing_style": style} if s3.endpoint else None,
    )
    base = botocore.session.Session()
    base.register_component("data_loader", _loader())
    session = boto3.Session(botocore_session=base, region_name=s3.region, **keys)
    client: S3Client = session.client("s3", endpoint_url=s3.endpoint or None, config=config)
    verify = base.get_config_variable("ca_bundle") or os.environ.get("REQUESTS_CA_BUNDLE") or True  # as botocore does
    proxies = get_environ_proxies(s3.endpoint or client.meta.endpoint_url)
    by_host = virtual_host(s3.endpoint, s3.bucket)
    sender = StoreSession(s3.endpoint, by_host, addresses, timeout_s, verify=verify, proxies=proxies)
    events: Any = client.meta.events
    events.register("before-send.s3", sender.send_request)
    events.register("before-call.s3.HeadBucket", do_not_redirect)
    return client


@cache
def _loader() -> Any:
    """The description of the S3 API, for botocore. Shared, because it takes 13 MB of memory."""
    return botocore.session.Session().get_component("data_loader")


def _code(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))


def _cause(error: BaseException) -> str:
    """The type of a network error and the operating system's text, without what the server sent."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.errno:
            return os.strerror(cause.errno)
        cause = cause.__cause__ or cause.__context__
    return type(error).__name__
