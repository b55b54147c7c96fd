"""The fence as data: the values `fence` of the chart, which the operator reads from a file.

An operator without the file has no fence. The chart's values.yaml has other defaults than this model: they allow what a
cluster that several teams share usually needs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from specbench_api.api_model import ApiModel
from specbench_api.spec.placement import Placement, Toleration
from specbench_api.spec.results import S3

Pattern = Annotated[str, Field(min_length=1, max_length=512)]
Patterns = tuple[Pattern, ...]
Seconds = Annotated[int, Field(ge=0)]


class TerminationMessages(StrEnum):
    """What status contains of the last messages of engines."""

    REDACTED = "Redacted"
    NONE = "None"


class StoreRule(ApiModel):
    """S3 endpoints and buckets where runs may store results, and from which their clients may read."""

    endpoint: Annotated[str, Field(max_length=512)]
    """Pattern of the endpoint exactly as runs write it; `*` matches no slash, but `*` alone matches all. Empty: AWS."""
    bucket: Annotated[str, Field(min_length=1, max_length=63)]
    """Pattern of the bucket."""
    operator_identity: bool = False
    """Whether runs without credentialsSecretRef may use the store, with the operator's own cloud identity."""


class ForcedValues(ApiModel):
    """Values that every engine gets. They override those of the run."""

    node_selector: dict[str, str] = {}
    tolerations: tuple[Toleration, ...] = ()
    queue_name: str = ""

    def applied_to(self, placement: Placement) -> Placement:
        """Return the placement with these values. They are not part of a point's identity, which the run's own are."""
        added = [each for each in self.tolerations if each not in placement.tolerations]
        values = {
            "node_selector": {**placement.node_selector, **self.node_selector},
            "tolerations": [*placement.tolerations, *added],
            "queue_name": self.queue_name or placement.queue_name,
        }
        return placement.model_copy(update=values)


class Limits(ApiModel):
    """Maxima. 0: no limit."""

    gpus: Annotated[int, Field(ge=0)] = 0
    """GPUs of one engine, over all its nodes."""
    active_deadline_seconds: Seconds = 0
    ttl_seconds_after_finished: Seconds = 0
    runs: Annotated[int, Field(ge=0)] = 0
    """Runs of one namespace in progress at the same time; the others wait."""


class Fence(ApiModel):
    """What runs may use. Patterns are globs in which only `*` is special; a list without entries allows nothing.

    In KEY=VALUE, key and value are compared separately; a pattern without `=` is compared with both as one text.
    """

    enabled: bool = True
    secrets_opt_in: bool = True
    termination_messages: TerminationMessages = TerminationMessages.REDACTED
    images: Patterns = ()
    commands: bool = False
    env: Patterns = ()
    service_accounts: Patterns = ()
    claims: Patterns = ()
    writable_claims: Patterns = ()
    resource_claim_templates: Patterns = ()
    priority_classes: Patterns = ()
    runtime_classes: Patterns = ()
    node_labels: Patterns = ()
    tolerations: Patterns = ()
    gpu_resources: Patterns = ()
    queues: Patterns = ()
    queue_priority_classes: Patterns = ()
    pod_labels: Patterns = ()
    pod_annotations: Patterns = ()
    config_maps: Patterns = ()
    extended_resources: Patterns = ()
    capabilities: Patterns = ()
    stores: tuple[StoreRule, ...] = ()
    endpoints: Patterns = ()
    """URLs of running servers to which clients may send load, with the patterns of `StoreRule.endpoint`."""
    default_store: S3 | None = None
    """Store of runs that name none. Like theirs, it must match `stores`, and its Secret is in the run's namespace."""
    force: ForcedValues = ForcedValues()
    limits: Limits = Limits()


def matches(text: str, patterns: Iterable[str], suffix: str = "") -> bool:
    """Return whether the text matches a glob. `suffix`: a regular expression of what may follow the globs' text."""
    alternatives = [_expression_of(pattern) for pattern in patterns]
    return bool(alternatives) and re.fullmatch(f"(?:{'|'.join(alternatives)}){suffix}", text, re.DOTALL) is not None


def _expression_of(pattern: str) -> str:
    """Return a glob as a regular expression, like the chart's template specbench.globs."""
    key, equals, value = pattern.partition("=")
    # In KEY=VALUE, an asterisk of the key must not match a part of the value.
    any_text = "[^=]*" if equals else ".*"
    return re.escape(key).replace(r"\*", any_text) + equals + re.escape(value).replace(r"\*", ".*")
