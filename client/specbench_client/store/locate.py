"""From what a person writes (`s3://bucket/prefix`, or a folder) to the store."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from pydantic import ValidationError

from specbench_api.spec.results import S3
from specbench_client.errors import BadInput
from specbench_client.store.folder import FolderStore
from specbench_client.store.s3 import S3Store, s3_client
from specbench_client.store.store import Store

_PARAMETERS = {"endpoint", "region"}


def open_store(location: str) -> Store:
    """The store at `s3://BUCKET[/PREFIX][?endpoint=URL&region=NAME]`, or in a folder. Touches nothing yet.

    Credentials, and endpoint and region where they are not given, come from the standard AWS environment.
    Raises BadInput.
    """
    if not location.startswith("s3://"):
        return _folder(location)
    parts = urlsplit(location)
    query = parse_qs(parts.query, keep_blank_values=True)
    unknown = sorted(query.keys() - _PARAMETERS)
    if unknown:
        raise BadInput(f"{location}: {unknown[0]!r} is no parameter of a location: endpoint and region are")
    if not parts.netloc:
        raise BadInput(f"{location}: the bucket is missing: s3://BUCKET/PREFIX")
    endpoint, region = (query.get(name, [""])[-1] or None for name in ("endpoint", "region"))
    if endpoint and urlsplit(endpoint).scheme not in ("http", "https"):
        raise BadInput(f"{location}: the endpoint {endpoint!r} needs http:// or https:// before it")
    _refuse_no_bucket(location, parts.netloc)
    try:
        client = s3_client(endpoint, region)
    except ValueError as error:  # botocore: an endpoint that is no URL, also from the environment
        raise BadInput(f"{location}: {error}") from error
    return S3Store(client, parts.netloc, parts.path)


def _refuse_no_bucket(location: str, bucket: str) -> None:
    """By the rule of admission."""
    try:
        S3(bucket=bucket)
    except ValidationError as error:
        rule = "3 to 63 small letters, digits, dots and dashes, with a letter or digit at both ends"
        raise BadInput(f"{location}: {bucket!r} cannot be the name of a bucket: {rule}") from error


def read_object(uri: str) -> bytes:
    """One object of S3 by its URI. Raises BadInput where there is none, NotDurable where S3 cannot be asked."""
    bucket, _, key = uri.removeprefix("s3://").partition("/")
    if not key or key.endswith("/"):
        raise BadInput(f"{uri}: names no object: s3://BUCKET/KEY")
    data = open_store(f"s3://{bucket}").get(key)
    if data is None:
        raise BadInput(f"{uri}: there is no such object")
    return data


def _folder(location: str) -> FolderStore:
    if "://" in location:
        scheme = location.partition("://")[0]
        raise BadInput(f"{location}: results cannot be kept at {scheme}://: give a folder, or s3://BUCKET/PREFIX")
    if not location:
        raise BadInput("no place for the results: give a folder, or s3://BUCKET/PREFIX")
    folder = Path(location).expanduser()
    if folder.is_file():
        raise BadInput(f"{location}: is a file: give the folder that `specbench run --results` wrote to")
    return FolderStore(folder)
