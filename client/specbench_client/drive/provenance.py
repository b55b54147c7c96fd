"""provenance.json: where the numbers come from, as far as it was seen: by whom, with what, from which prompts, on what.

What the plan asked for stands beside what the launches told, and never in its place.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

import specbench_client
from specbench_api.outcome.launched import Launched
from specbench_api.outcome.layout import launch_key
from specbench_api.outcome.manifest import Manifest, Observed
from specbench_api.outcome.summary import RunSummary
from specbench_api.plan.plan import Plan
from specbench_client.store.store import Store
from specbench_client.trust.checks.arms_differ import CHECK as ARMS_DIFFER

SCHEMA = "specbench.io/provenance/v2"


@dataclass(frozen=True)
class Launches:
    """The launches that served the points with a manifest. `unseen`: those of which nothing can be read, and why."""

    seen: tuple[Launched, ...]
    unseen: Mapping[str, str]

    def to_dict(self) -> dict[str, Any]:
        """By name."""
        found = {launch.launch: launch.to_dict() for launch in self.seen}
        return dict(sorted({**found, **{name: {"reason": reason} for name, reason in self.unseen.items()}}.items()))


def read_launches(store: Store, manifests: Iterable[Manifest]) -> Launches:
    """What was kept of them. Blocks. Raises NotDurable where the store does.

    A launch that cannot be read is told with the reason: no figure rests on it.
    """
    seen, unseen = list[Launched](), dict[str, str]()
    for name in dict.fromkeys(manifest.observed.launch for manifest in manifests):
        key = launch_key(name)
        data = store.get(key)
        if data is None:
            unseen[name] = f"there is no {key}"
            continue
        try:
            seen.append(Launched.from_json(data))
        except ValidationError as error:
            unseen[name] = f"{key} cannot be read: it was written by another version of specbench, or damaged: {error}"
    return Launches(tuple(seen), unseen)


def provenance(plan: Plan, manifests: Sequence[Manifest], launches: Launches, summary: RunSummary) -> str:
    """The document."""
    document: dict[str, Any] = {
        "schemaVersion": SCHEMA,
        "created": summary.created,
        "reportedBy": {"client": specbench_client.__version__, "python": platform.python_version()},
        "target": plan.target.to_dict(),
        "engine": plan.engine.to_dict(),
        **_values([manifest.observed for manifest in manifests]),
        "arms": [arm.to_dict() for arm in summary.arms_seen],
        "differences": [finding.message for finding in summary.findings if finding.check == ARMS_DIFFER.name],
        "launches": launches.to_dict(),
        "points": {manifest.hash: _point(manifest) for manifest in manifests},
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _values(seen: Sequence[Observed]) -> dict[str, list[str]]:
    """What the manifests saw: one value each where nothing changed on the way."""
    return {
        "engineVersions": sorted({one.engine_version for one in seen if one.engine_version}),
        "engineModels": sorted({one.engine_model for one in seen if one.engine_model}),
        "imageDigests": sorted({one.image_digest for one in seen if one.image_digest}),
        "clientVersions": sorted({one.client_version for one in seen}),
        "datasetFingerprints": sorted({one.dataset_fingerprint for one in seen}),
        "chatTemplates": sorted({one.chat_template_sha256 for one in seen if one.chat_template_sha256}),
        "tokenizers": sorted({one.tokenizer_sha256 for one in seen if one.tokenizer_sha256}),
    }


def _point(manifest: Manifest) -> dict[str, str]:
    return {
        "attempt": manifest.attempt,
        "launch": manifest.observed.launch,
        "started": manifest.started_wall,
        "ended": manifest.ended_wall,
    }
