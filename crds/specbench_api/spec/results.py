"""`spec.results`: where records and answers are kept."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from specbench_api.model import ApiModel


class S3(ApiModel):
    """An S3 bucket. Credentials come from a Secret, or from the service account's cloud identity."""

    bucket: Annotated[str, Field(min_length=3, max_length=63, pattern=r"^[a-z0-9][a-z0-9.-]*[a-z0-9]$")]
    """Bucket; it must exist."""
    prefix: Annotated[str, Field(max_length=512, pattern=r"^([A-Za-z0-9!_.*'()-]+(/[A-Za-z0-9!_.*'()-]+)*)?$")] = ""
    """Prefix of all keys, without slashes at its ends."""
    endpoint: Annotated[str, Field(max_length=512, pattern=r"^(https?://.+)?$")] = ""
    """Endpoint of an S3-compatible server; empty for AWS."""
    region: Annotated[str, Field(min_length=1, max_length=64)] = "us-east-1"
    """Region."""
    credentials_secret: (
        Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$")] | None
    ) = None
    """Secret of the run's namespace with AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, perhaps AWS_SESSION_TOKEN."""


class Results(ApiModel):
    """Where results go.

    On this machine `specbench run --results` says where (default: ./specbench-results), and the bucket, which every run
    has, is not used.
    """

    s3: S3
    """The bucket."""
