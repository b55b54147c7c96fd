"""`spec.results`: where records and answers are kept."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field, model_validator

from specbench_api.model import ApiModel, Rule
from specbench_api.spec.kubernetes import DNS_NAME, ObjectName


class S3(ApiModel):
    """An S3 bucket. Credentials come from a Secret, or from the service account's cloud identity."""

    rules: ClassVar = (
        Rule(
            "!self.prefix.matches('(^|/)[.][.]?(/|$)')",
            "s3.prefix leads through . or ..: S3 has no folders, and tools that copy results to a disk would follow it",
        ),
    )

    bucket: Annotated[str, Field(min_length=3, max_length=63, pattern=DNS_NAME)]
    """Bucket; it must exist."""
    prefix: Annotated[str, Field(max_length=512, pattern=r"^([A-Za-z0-9!_.*'()-]+(/[A-Za-z0-9!_.*'()-]+)*)?$")] = ""
    """Prefix of all keys, without slashes at its ends."""
    endpoint: Annotated[str, Field(max_length=512, pattern=r"^(https?://[^/\s]+(/[^\s]*)?)?$")] = ""
    """Endpoint of an S3-compatible server; empty for AWS."""
    region: Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_-]+$")] = "us-east-1"
    """Region."""
    credentials_secret: ObjectName | None = None
    """Secret of the run's namespace with AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, perhaps AWS_SESSION_TOKEN."""

    @model_validator(mode="after")
    def _downwards(self) -> S3:
        if {".", ".."} & set(self.prefix.split("/")):
            raise ValueError(self.rules[0].message)
        return self


LATEST = "Latest"
"""In the place of a UID: whichever results of this namespace and name are the newest that measure the same."""


class Results(ApiModel):
    """Where results go.

    On this machine `specbench run --results` says where (default: ./specbench-results), and the bucket, which every run
    has, is not used.
    """

    s3: S3
    """The bucket."""
    adopt: Annotated[str, Field(max_length=64, pattern=r"^(Latest|[a-z0-9]([a-z0-9-]*[a-z0-9])?)$")] | None = None
    """UID of an earlier run of this namespace and name: its results are carried on under the place that they have, and
    nothing in them is measured twice. For a run whose resource, or whole cluster, was lost; see docs/recovery.md.
    Latest: the newest results of this namespace and name that measure the same; where there are none, it begins anew.
    Where names of arms and workloads, or the order of arms and levels, alone are others, those that lie there stay.
    Of a campaign, the first round alone does so. A run on this machine finds its earlier results by itself."""
