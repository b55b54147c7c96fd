"""Read access to one S3 bucket, and the mapping of boto3's errors to StoreFailure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

import boto3
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
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

from specbench_api.redaction import redact
from specbench_api.spec.results import S3
from specbench_operator.state.run import StoreFailure

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client

_NO_CREDENTIALS = (NoCredentialsError, PartialCredentialsError, CredentialRetrievalError, TokenRetrievalError)
_DENIED = frozenset({"ExpiredToken", "InvalidToken", "XAdminUserNotFound"})
"""Error codes of denied requests that some servers return with status 400 or 404 instead of 401 or 403."""
_UNREACHABLE = (UnreachableError, HTTPClientError, ResponseStreamingError, OSError)
_DENIED_STATUS = (401, 403)
_BUSY = frozenset({"SlowDown", "Throttling", "RequestTimeout", "TooManyRequests", "429"})
_MISSING = frozenset({"NoSuchKey", "404", "NotFound"})
KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")


class StoreError(Exception):
    """A request to S3 failed. Always caught by `cluster.results`."""

    def __init__(self, failure: StoreFailure) -> None:
        self.failure = replace(failure, message=redact(failure.message))  # it may quote the server or the endpoint
        super().__init__(self.failure.message)


@dataclass(frozen=True)
class Listing:
    """The objects directly below a prefix, and the prefixes one level deeper."""

    keys: Mapping[str, str]
    """Key → ETag."""
    prefixes: tuple[str, ...]
    modified: Mapping[str, datetime] = field(default_factory=dict)
    """Key → time at which it was stored, by the server's clock."""


class Bucket:
    """One bucket with one set of credentials. boto3's clients are safe between threads."""

    def __init__(self, s3: S3, credentials: Mapping[str, str] | None, timeout_s: float) -> None:
        self._client = _client(s3, credentials, timeout_s)
        self._name = s3.bucket
        self._where = s3.endpoint or "AWS"

    def listing(self, prefix: str) -> Listing:
        """List one level. Raises StoreError."""
        keys: dict[str, str] = {}
        modified: dict[str, datetime] = {}
        prefixes: list[str] = []
        try:
            pages = self._client.get_paginator("list_objects_v2")
            for page in pages.paginate(Bucket=self._name, Prefix=prefix, Delimiter="/"):
                keys |= {row["Key"]: row.get("ETag", "") for row in page.get("Contents", [])}
                modified |= {row["Key"]: row["LastModified"] for row in page.get("Contents", [])}
                prefixes += [row["Prefix"] for row in page.get("CommonPrefixes", [])]
        except (BotoCoreError, ClientError) as error:
            raise StoreError(self._failure(error)) from error
        return Listing(keys, tuple(prefixes), modified)

    def has(self, key: str) -> bool:
        """Whether an object with this key exists. Raises StoreError."""
        try:
            self._client.head_object(Bucket=self._name, Key=key)
        except ClientError as error:
            if _code(error) in _MISSING:
                return False
            raise StoreError(self._failure(error)) from error
        except BotoCoreError as error:
            raise StoreError(self._failure(error)) from error
        return True

    def get(self, key: str) -> bytes | None:
        """The object's content; None if it does not exist. Raises StoreError."""
        try:
            return self._client.get_object(Bucket=self._name, Key=key)["Body"].read()
        except ClientError as error:
            if _code(error) in _MISSING:
                return None
            raise StoreError(self._failure(error)) from error
        except (BotoCoreError, OSError) as error:
            raise StoreError(self._failure(error)) from error

    def _failure(self, error: Exception) -> StoreFailure:
        where = f"s3://{self._name} at {self._where}"
        if isinstance(error, ClientError):
            return self._failure_of_response(error, where)
        if isinstance(error, _NO_CREDENTIALS):
            remedy = "name a Secret in spec.results.s3.credentialsSecret, or give the operator a cloud identity"
            return StoreFailure("CredentialsMissing", f"no credentials for {where}: {error}; {remedy}", refused=True)
        if isinstance(error, _UNREACHABLE):
            message = f"{where} cannot be reached: {error}; the operator retries automatically"
            return StoreFailure("S3Away", message, refused=False)
        return StoreFailure("StoreRefused", f"{where}: {error}", refused=True)

    def _failure_of_response(self, error: ClientError, where: str) -> StoreFailure:
        code = _code(error)
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        if code == "NoSuchBucket":
            message = f"the bucket {where} does not exist: create it, or correct spec.results.s3.bucket"
            return StoreFailure("BucketMissing", message, refused=True)
        if code in _DENIED or status in _DENIED_STATUS:
            remedy = "allow the operator's credentials to list the bucket and to read its objects"
            return StoreFailure("CredentialsRefused", f"{where} denied access: {error}; {remedy}", refused=True)
        away = code in _BUSY or status >= 500
        return StoreFailure("S3Away" if away else "StoreRefused", f"{where}: {error}", refused=not away)


def _client(s3: S3, credentials: Mapping[str, str] | None, timeout_s: float) -> S3Client:
    keys: dict[str, Any] = {}
    if credentials is not None:
        names = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")
        keys = dict(zip(names, (credentials.get(key) for key in KEYS), strict=True))
    config = Config(
        connect_timeout=timeout_s,
        read_timeout=timeout_s,
        retries={"mode": "standard", "total_max_attempts": 2},
        # Servers other than AWS rarely have a DNS name per bucket.
        s3={"addressing_style": "path"} if s3.endpoint else None,
    )
    session = boto3.Session(region_name=s3.region, **keys)
    return session.client("s3", endpoint_url=s3.endpoint or None, config=config)


def _code(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))
