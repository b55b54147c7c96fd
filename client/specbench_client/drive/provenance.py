"""Writes provenance.json: the software, engines, hardware and prompts that the results come from.

Declared values of the plan and observed values of the launches are separate entries; neither replaces the other.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Sequence
from typing import Any

import specbench_client
from specbench_api.outcome.manifest import Manifest, PointProvenance
from specbench_api.outcome.summary import RunSummary
from specbench_api.plan.plan import Plan
from specbench_client.drive.stored_points import StoredLaunches
from specbench_client.trust.checks.arm_environments_differ import CHECK as ARMS_DIFFER

SCHEMA = "specbench.io/provenance/v2"


def provenance_json(plan: Plan, manifests: Sequence[Manifest], launches: StoredLaunches, summary: RunSummary) -> str:
    """Return the content of provenance.json."""
    document: dict[str, Any] = {
        "schemaVersion": SCHEMA,
        "created": summary.created,
        "reportedBy": {"client": specbench_client.__version__, "python": platform.python_version()},
        "target": plan.target.to_dict(),
        "engine": plan.engine.to_dict(),
        **_distinct_observed([manifest.observed for manifest in manifests]),
        "arms": [arm.to_dict() for arm in summary.arm_environments],
        "differences": [finding.message for finding in summary.findings if finding.check == ARMS_DIFFER.name],
        "launches": launches.to_dict(),
        "points": {manifest.hash: _point_entry(manifest) for manifest in manifests},
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _distinct_observed(seen: Sequence[PointProvenance]) -> dict[str, list[str]]:
    """Return the distinct observed values of all manifests: one each if nothing changed during the run."""
    return {
        "engineVersions": sorted({one.engine_version for one in seen if one.engine_version}),
        "engineModels": sorted({one.engine_model for one in seen if one.engine_model}),
        "imageDigests": sorted({one.image_digest for one in seen if one.image_digest}),
        "clientVersions": sorted({one.client_version for one in seen}),
        "datasetFingerprints": sorted({one.dataset_fingerprint for one in seen}),
        "chatTemplates": sorted({one.chat_template_sha256 for one in seen if one.chat_template_sha256}),
        "tokenizers": sorted({one.tokenizer_sha256 for one in seen if one.tokenizer_sha256}),
    }


def _point_entry(manifest: Manifest) -> dict[str, str]:
    return {
        "attempt": manifest.attempt,
        "launch": manifest.observed.launch,
        "started": manifest.started_wall,
        "ended": manifest.ended_wall,
    }
