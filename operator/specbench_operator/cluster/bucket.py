"""One bucket, read only: listing and small objects. boto3's many errors become StoreTrouble here and nowhere else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
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

from specbench_api.spec.results import S3
from specbench_operator.state.stored import StoreTrouble

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client

_NO_CREDENTIALS = (NoCredentialsError, PartialCredentialsError, CredentialRetrievalError, TokenRetrievalError)
_DENIED = frozenset({"ExpiredToken", "InvalidToken", "XAdminUserNotFound"})
"""Answered with 400 or 404 by some servers; whatever else is denied has a status that says so."""
_UNREACHABLE = (UnreachableError, HTTPClientError, ResponseStreamingError, OSError)
_DENIED_STATUS = (401, 403)
_BUSY = frozenset({"SlowDown", "Throttling", "RequestTimeout", "TooManyRequests", "429"})
_MISSING = frozenset({"NoSuchKey", "404", "NotFound"})
KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")


class StoreError(Exception):
    """S3 did not give what was asked for. Caught by `results`, never seen outside of this room."""

    def __init__(self, trouble: StoreTrouble) -> None:
        super().__init__(trouble.message)
        self.trouble = trouble


@dataclass(frozen=True)
class Listing:
    """What lies directly below a prefix: its keys with their ETags, and the prefixes one level deeper."""

    keys: Mapping[str, str]
    prefixes: tuple[str, ...]
    modified: Mapping[str, datetime] = field(default_factory=dict)
    """By key, when it was stored, by the server's clock."""


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
            raise StoreError(self._trouble(error)) from error
        return Listing(keys, tuple(prefixes), modified)

    def has(self, key: str) -> bool:
        """Whether there is such an object. Raises StoreError."""
        try:
            self._client.head_object(Bucket=self._name, Key=key)
        except ClientError as error:
            if _code(error) in _MISSING:
                return False
            raise StoreError(self._trouble(error)) from error
        except BotoCoreError as error:
            raise StoreError(self._trouble(error)) from error
        return True

    def get(self, key: str) -> bytes | None:
        """Its content, or None. Raises StoreError."""
        try:
            return self._client.get_object(Bucket=self._name, Key=key)["Body"].read()
        except ClientError as error:
            if _code(error) in _MISSING:
                return None
            raise StoreError(self._trouble(error)) from error
        except (BotoCoreError, OSError) as error:
            raise StoreError(self._trouble(error)) from error

    def _trouble(self, error: Exception) -> StoreTrouble:
        where = f"s3://{self._name} at {self._where}"
        if isinstance(error, ClientError):
            return self._answered(error, where)
        if isinstance(error, _NO_CREDENTIALS):
            remedy = "name a Secret in spec.results.s3.credentialsSecret, or give the operator a cloud identity"
            return StoreTrouble("CredentialsMissing", f"no credentials for {where}: {error}; {remedy}", refused=True)
        if isinstance(error, _UNREACHABLE):
            return StoreTrouble("S3Away", f"{where} cannot be reached: {error}", refused=False)
        return StoreTrouble("StoreRefused", f"{where}: {error}", refused=True)

    def _answered(self, error: ClientError, where: str) -> StoreTrouble:
        code = _code(error)
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        if code == "NoSuchBucket":
            return StoreTrouble("BucketMissing", f"there is no bucket {where}: create it", refused=True)
        if code in _DENIED or status in _DENIED_STATUS:
            remedy = "the operator must be allowed to list the bucket and to read its objects"
            return StoreTrouble("CredentialsRefused", f"{where} refused: {error}; {remedy}", refused=True)
        away = code in _BUSY or status >= 500
        return StoreTrouble("S3Away" if away else "StoreRefused", f"{where}: {error}", refused=not away)


def _client(s3: S3, credentials: Mapping[str, str] | None, timeout_s: float) -> S3Client:
    given: dict[str, Any] = {}
    if credentials is not None:
        names = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")
        given = dict(zip(names, (credentials.get(key) for key in KEYS), strict=True))
    config = Config(
        connect_timeout=timeout_s,
        read_timeout=timeout_s,
        retries={"mode": "standard", "total_max_attempts": 2},
        # A server of one's own rarely has a DNS name a bucket.
        s3={"addressing_style": "path"} if s3.endpoint else None,
    )
    session = boto3.Session(region_name=s3.region, **given)
    return session.client("s3", endpoint_url=s3.endpoint or None, config=config)


def _code(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))
