"""A store in an S3 bucket: conditional writes, checksums on the wire, multipart for what is large.

`If-None-Match: *` makes the server refuse an overwrite, so create-only holds between clients that know nothing of
each other. An answer that got lost looks like a conflict when the write is repeated: then the contents are compared.
Only brief retries happen here (botocore's own); waiting out a longer outage is `patience`'s business.
"""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, TypedDict

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, FlexibleChecksumError

from specbench_client.errors import NotDurable
from specbench_client.store.refusals import refusals
from specbench_client.store.store import Refusal

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client
    from mypy_boto3_s3.type_defs import CompletedPartTypeDef

DEFAULT_REGION = "us-east-1"
MULTIPART_BYTES = 16 * 1024 * 1024
"""From this size on; S3 wants parts of at least 5 MiB."""
_EXISTS = ("PreconditionFailed", "ConditionalRequestConflict", "412", "409")
_MISSING = ("NoSuchKey", "404")


class _Type(TypedDict):
    ContentType: str


class _Upload(TypedDict):
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
    """A client from the standard AWS environment; `endpoint` and `region` override it."""
    session = boto3.Session()
    where = region or os.environ.get("AWS_REGION") or session.region_name or DEFAULT_REGION
    client = session.client("s3", endpoint_url=endpoint, region_name=where, config=_CONFIG)
    chosen = session._session.get_scoped_config().get("s3", {})  # noqa: SLF001 -- boto3 has no public way to it
    if client.meta.endpoint_url.endswith("amazonaws.com") or "addressing_style" in chosen:
        return client
    # A server of one's own rarely has a DNS name a bucket.
    by_path = _CONFIG.merge(Config(s3={"addressing_style": "path"}))
    return session.client("s3", endpoint_url=endpoint, region_name=where, config=by_path)


class S3Store:
    """Objects of a bucket below a prefix. boto3's clients are safe between threads."""

    def __init__(self, client: S3Client, bucket: str, prefix: str = "", multipart_bytes: int = MULTIPART_BYTES) -> None:
        self._client = client
        self._bucket = bucket
        self._prefix = prefix.strip("/")
        self._multipart_bytes = multipart_bytes

    def put(self, key: str, data: bytes) -> None:
        with self._refusals():
            try:
                self._create(self._full(key), data)
            except ClientError as error:
                if error.response["Error"]["Code"] not in _EXISTS:
                    raise
                self._same_or_conflict(key, data)

    def replace(self, key: str, data: bytes) -> None:
        with self._refusals():
            self._client.put_object(
                Bucket=self._bucket, Key=self._full(key), Body=data, ChecksumAlgorithm="SHA256", **_type_of(key)
            )

    def get(self, key: str) -> bytes | None:
        with self._refusals():
            try:
                answer = self._client.get_object(Bucket=self._bucket, Key=self._full(key), ChecksumMode="ENABLED")
                return answer["Body"].read()
            except ClientError as error:
                if error.response["Error"]["Code"] in _MISSING:
                    return None
                raise
            except FlexibleChecksumError as error:
                what = f"it does not match the checksum that was stored with it ({error})"
                raise NotDurable(f"{self.uri(key)}: {what}; remove it and run again", Refusal.DAMAGED) from error

    def keys(self, prefix: str = "") -> list[str]:
        root = f"{self._prefix}/" if self._prefix else ""
        found: list[str] = []
        with self._refusals():
            pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=self._bucket, Prefix=root + prefix)
            for page in pages:
                found += [entry["Key"].removeprefix(root) for entry in page.get("Contents", [])]
        return sorted(found)

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
            Bucket=self._bucket, Key=key, Body=data, ChecksumAlgorithm="SHA256", IfNoneMatch="*", **_type_of(key)
        )

    def _create_in_parts(self, key: str, data: bytes) -> None:
        started = self._client.create_multipart_upload(
            Bucket=self._bucket, Key=key, ChecksumAlgorithm="SHA256", **_type_of(key)
        )
        upload: _Upload = {"Bucket": self._bucket, "Key": key, "UploadId": started["UploadId"]}
        try:
            parts = self._upload_parts(upload, data)
            self._client.complete_multipart_upload(**upload, MultipartUpload={"Parts": parts}, IfNoneMatch="*")
        except BaseException as failure:
            self._forget(upload, failure)
            raise

    def _upload_parts(self, upload: _Upload, data: bytes) -> list[CompletedPartTypeDef]:
        size, view = self._multipart_bytes, memoryview(data)
        parts: list[CompletedPartTypeDef] = []
        for number, start in enumerate(range(0, len(data), size), start=1):
            answer = self._client.upload_part(
                **upload, PartNumber=number, Body=bytes(view[start : start + size]), ChecksumAlgorithm="SHA256"
            )
            part = {"PartNumber": number, "ETag": answer["ETag"], "ChecksumSHA256": answer["ChecksumSHA256"]}
            parts.append(part)  # type: ignore[arg-type]
        return parts

    def _forget(self, upload: _Upload, failure: BaseException) -> None:
        """Give the parts' room back. Where that fails too, the first failure is the one to tell."""
        try:
            self._client.abort_multipart_upload(**upload)
        except (BotoCoreError, ClientError) as error:
            failure.add_note(f"the parts of {upload['Key']} still take room: {error}")

    def _same_or_conflict(self, key: str, data: bytes) -> None:
        found = self.get(key)
        if found is None:
            raise NotDurable(f"{self.uri(key)} is being written by another client; run again", Refusal.AWAY)
        if found != data:
            raise NotDurable(
                f"{self.uri(key)} exists already with other content and is never overwritten: another client wrote it,"
                " or the prefix belongs to another run; choose another prefix",
                Refusal.CONFLICT,
            )

    def _refusals(self) -> AbstractContextManager[None]:
        return refusals(self._bucket, self._client.meta.endpoint_url)


def _type_of(key: str) -> _Type:
    """So that a browser shows the report instead of saving it."""
    guess = {"json": "application/json", "html": "text/html; charset=utf-8", "csv": "text/csv; charset=utf-8"}
    return {"ContentType": guess.get(key.rpartition(".")[2], "application/octet-stream")}
