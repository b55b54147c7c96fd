"""boto3's many errors → NotDurable with one of our reasons; the one place, most specific first."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    CredentialRetrievalError,
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
from specbench_client.store.store import Refusal

# Servers have many names for it; nearly all come with 401 or 403, but not these (the first is versitygw's, with 404).
_CREDENTIALS = frozenset({
    "XAdminUserNotFound", "InvalidAccessKeyId", "ExpiredToken", "InvalidToken", "TokenRefreshRequired",
    "AuthorizationHeaderMalformed",
})  # fmt: skip
_FULL = frozenset({"XMinioStorageFull", "InsufficientStorage", "QuotaExceeded", "XAmzQuotaExceeded", "507"})
_CLOCK = frozenset({"RequestTimeTooSkewed", "RequestExpired"})
_AWAY = frozenset({"SlowDown", "Throttling", "RequestTimeout", "RequestTimeoutException", "TooManyRequests", "429"})
_NO_CREDENTIALS = (NoCredentialsError, PartialCredentialsError, CredentialRetrievalError, TokenRetrievalError)
_UNREACHABLE = (UnreachableError, HTTPClientError, ResponseStreamingError, IncompleteReadError)


@contextmanager
def refusals(bucket: str, endpoint: str) -> Iterator[None]:
    """Raise NotDurable for whatever boto3 raises inside."""
    try:
        yield
    except (BotoCoreError, ClientError, ResponseParserError) as error:
        raise refusal_of(error, bucket, endpoint) from error


def refusal_of(error: BotoCoreError | ClientError | ResponseParserError, bucket: str, endpoint: str) -> NotDurable:
    """The error as ours. The server's own words stay in it; keys and secrets never were."""
    if isinstance(error, ClientError):
        return _answered(error, bucket, endpoint)
    if isinstance(error, _NO_CREDENTIALS):
        remedy = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or give the service account a cloud identity"
        return NotDurable(f"no usable credentials for s3://{bucket}: {error}; {remedy}", Refusal.CREDENTIALS_REFUSED)
    if isinstance(error, SSLError):
        remedy = "if its certificate is your own, set AWS_CA_BUNDLE to the file of its authority"
        return NotDurable(f"no TLS with {endpoint}: {error}; {remedy}", Refusal.REFUSED)
    if isinstance(error, _UNREACHABLE):
        remedy = "check the endpoint (AWS_ENDPOINT_URL_S3) and the network; nothing was lost, run again when it is back"
        return NotDurable(f"{endpoint} cannot be reached: {error}; {remedy}", Refusal.AWAY)
    return NotDurable(f"s3://{bucket} at {endpoint}: {error}", Refusal.REFUSED)


def _answered(error: ClientError, bucket: str, endpoint: str) -> NotDurable:
    code = str(error.response.get("Error", {}).get("Code", ""))
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    where = f"s3://{bucket} at {endpoint}"
    if code == "NoSuchBucket" or (code == "404" and error.operation_name == "HeadBucket"):
        remedy = "create it, or correct spec.results.s3.bucket; buckets are never created by specbench"
        return NotDurable(f"the bucket {bucket!r} does not exist at {endpoint}: {remedy}", Refusal.BUCKET_MISSING)
    if code in _CLOCK:  # comes with 403, and the credentials are not to blame
        remedy = "set the clock of this machine right, or the server's"
        return NotDurable(f"{where} and this machine differ about the time ({error}): {remedy}", Refusal.CLOCK_WRONG)
    if code in _CREDENTIALS or status in (401, 403):
        remedy = "check the access key, its secret, and that it may read, write and list this bucket"
        return NotDurable(f"{where} refused the credentials ({error}): {remedy}", Refusal.CREDENTIALS_REFUSED)
    return _failing(error, code, status, where)


def _failing(error: ClientError, code: str, status: int, where: str) -> NotDurable:
    """What is the server's own trouble."""
    if code in _FULL:
        return NotDurable(f"{where} has no room left ({error}): make room and run again", Refusal.DISK_FULL)
    if code in _AWAY or (status >= 500 and status != 501):
        return NotDurable(f"{where} is failing ({error}); run again when it is well", Refusal.AWAY)
    if status == 501:
        remedy = "it needs conditional writes (If-None-Match) and SHA-256 checksums"
        return NotDurable(f"{where} does not know a request that results rest on ({error}): {remedy}", Refusal.REFUSED)
    return NotDurable(f"{where}: {error}", Refusal.REFUSED)
