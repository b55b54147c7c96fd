"""`spec.results`: where records and results are stored."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from specbench_api.api_model import RuledModel, ValidationRule
from specbench_api.spec.patterns import DNS_NAME
from specbench_api.spec.secret_refs import SecretRef
from specbench_api.spec.store_endpoints import ENDPOINT


class S3(RuledModel):
    """An S3 bucket. Credentials come from a Secret, or from the service account's cloud identity."""

    rules: ClassVar = (
        ValidationRule(
            "!self.prefix.matches('(^|/)[.][.]?(/|$)')",
            "s3.prefix has a . or .. component: remove it, since tools that copy results to a disk would follow it",
            lambda s3: not {".", ".."} & set(s3.prefix.split("/")),
        ),
    )

    bucket: Annotated[str, Field(min_length=3, max_length=63, pattern=DNS_NAME)]
    """Name of the bucket, which must exist."""
    prefix: Annotated[str, Field(max_length=512, pattern=r"^([A-Za-z0-9!_.*'()-]+(/[A-Za-z0-9!_.*'()-]+)*)?$")] = ""
    """Prefix of all keys, without a slash at either end: `team/benchmarks`. Empty: none."""
    endpoint: Annotated[str, Field(max_length=512, pattern=ENDPOINT)] = ""
    """URL of an S3-compatible server: `http://minio:9000`, without user, query and fragment. Empty: AWS."""
    region: Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_-]+$")] = "us-east-1"
    """Region of the bucket."""
    credentials_secret_ref: SecretRef | None = None
    """Secret in the run's namespace with AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and optionally AWS_SESSION_TOKEN.
    Without it: the service account's cloud identity."""

    @property
    def secret_name(self) -> str | None:
        """Name of the Secret with the credentials; None for the service account's cloud identity."""
        return self.credentials_secret_ref.name if self.credentials_secret_ref else None

    def key(self, path: str) -> str:
        """Return the object key of a path below the prefix."""
        return f"{self.prefix}/{path}" if self.prefix else path

    @property
    def uri(self) -> str:
        """URI of the root of all results: `s3://bucket/prefix`."""
        return f"s3://{self.bucket}/{self.prefix}" if self.prefix else f"s3://{self.bucket}"


UID = "[a-z0-9]([a-z0-9-]*[a-z0-9])?"
"""Pattern of the UID of results."""
LATEST = "Latest"
"""Value of `adopt` instead of a UID: the newest results of this namespace and name with the same measurement."""


class Results(RuledModel):
    """Where results are stored.

    `specbench run` stores them in the folder of its flag `--results` (default: ./specbench-results) instead.
    """

    rules: ClassVar = (
        ValidationRule(
            "!has(self.adopt) || self.adopt != 'latest'",
            "results.adopt: latest is not a UID: write Latest",
            lambda results: results.adopt != LATEST.lower(),
        ),
    )

    s3: S3 | None = None
    """The bucket. Without it: the default of the cluster (`fence.defaultStore` of the chart), as status.store has it
    from the run's start on; its Secret, too, is in the run's namespace."""
    adopt: Annotated[str, Field(max_length=64, pattern=f"^({LATEST}|{UID})$")] | None = None
    """Adopt the results of an earlier run: continue in its folder and measure no point twice. Use it when the run's
    resource, or the whole cluster, was lost; see docs, "Recover a lost run". Value: the UID of an earlier run with this
    namespace and name, or `Latest` for the newest results that measure the same (if there are none, the run starts
    afresh). Without it: results get their own folder. In a campaign only the first round adopts. `specbench run` finds
    its earlier results."""

    @property
    def store(self) -> S3:
        """The bucket of a run on a cluster: the operator has filled in the default, or refused the run."""
        assert self.s3 is not None
        return self.s3
