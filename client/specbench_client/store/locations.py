"""Opens stores by location: `s3://BUCKET/PREFIX` or a folder."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from pydantic import ValidationError

from specbench_api.spec.results import S3
from specbench_client.errors import BadInput
from specbench_client.file_roots import file_roots, readable_path
from specbench_client.store.folder import FolderStore
from specbench_client.store.store import Store

_PARAMETERS = {"endpoint", "region"}


def open_store(location: str) -> Store:
    """Return the store at `s3://BUCKET[/PREFIX][?endpoint=URL&region=NAME]` or in a folder, without accessing it.

    Credentials, and endpoint and region if they are not given, come from the standard AWS environment.
    Raises BadInput.
    """
    if not location.startswith("s3://"):
        return _open_folder(location)
    parts = urlsplit(location)
    query = parse_qs(parts.query, keep_blank_values=True)
    unknown = sorted(query.keys() - _PARAMETERS)
    if unknown:
        raise BadInput(f"{location}: unknown parameter {unknown[0]!r}: use endpoint or region")
    if not parts.netloc:
        raise BadInput(f"{location}: the bucket is missing: s3://BUCKET/PREFIX")
    endpoint, region = (query.get(name, [""])[-1] or None for name in ("endpoint", "region"))
    if endpoint and urlsplit(endpoint).scheme not in ("http", "https"):
        raise BadInput(f"{location}: the endpoint {endpoint!r} needs http:// or https:// before it")
    _validate_bucket_name(location, parts.netloc)
    from botocore.exceptions import BotoCoreError  # noqa: PLC0415  boto3 takes 0.3 s to import

    from specbench_client.store.s3 import S3Store, s3_client  # noqa: PLC0415

    try:
        client = s3_client(endpoint, region)
    except (BotoCoreError, ValueError, OSError) as error:  # Nothing is sent yet: the settings are wrong.
        remedy = "correct that where it is set: endpoint and region in the URI, or AWS_PROFILE, AWS_CONFIG_FILE, AWS_…"
        raise BadInput(f"{location}: S3 cannot be used: {error}: {remedy}") from error
    return S3Store(client, parts.netloc, parts.path)


def _validate_bucket_name(location: str, bucket: str) -> None:
    """Apply the rule of the API's `S3` model. Raises BadInput."""
    try:
        S3(bucket=bucket)
    except ValidationError as error:
        rule = "use 3 to 63 lower-case letters, digits, dots and dashes, with a letter or digit at both ends"
        raise BadInput(f"{location}: {bucket!r} is not a valid bucket name: {rule}") from error


def read_object(uri: str) -> bytes:
    """Return an S3 object by its URI. Raises BadInput if it does not exist, NotDurable if S3 cannot be accessed."""
    bucket, _, key = uri.removeprefix("s3://").partition("/")
    if not key or key.endswith("/"):
        raise BadInput(f"{uri}: contains no object key: write s3://BUCKET/KEY")
    _validate_bucket_name(uri, bucket)  # `BUCKET?endpoint=URL` would send the keys to any server.
    data = open_store(f"s3://{bucket}").get(key)
    if data is None:
        raise BadInput(f"{uri}: there is no such object")
    return data


def open_baseline(location: str) -> Store:
    """Open the store of a baseline that a spec names. In a client Job it must be in the S3 of the results.

    Raises BadInput.
    """
    if file_roots() is None:
        return open_store(location)
    if not location.startswith("s3://"):
        return open_store(str(readable_path(Path(location), "gate.baselineRef.uri")))
    if "?" in location:
        remedy = "leave out the parameters: the endpoint and region are those of spec.results.s3"
        raise BadInput(f"gate.baselineRef.uri: {location}: a client Job reads no other server: {remedy}")
    return open_store(location)


def _open_folder(location: str) -> FolderStore:
    if "://" in location:
        scheme = location.partition("://")[0]
        raise BadInput(f"{location}: results cannot be stored at {scheme}://: give a folder, or s3://BUCKET/PREFIX")
    if not location:
        raise BadInput("the location of the results is empty: give a folder, or s3://BUCKET/PREFIX")
    folder = Path(location).expanduser()
    if folder.is_file():
        raise BadInput(f"{location}: is a file: give the folder of the results")
    return FolderStore(folder)
