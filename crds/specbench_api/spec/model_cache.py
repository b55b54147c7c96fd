"""`spec.placement.modelCache`: the volume with models from the hub."""

from __future__ import annotations

from typing import ClassVar

from specbench_api.api_model import RuledModel, ValidationRule
from specbench_api.spec.patterns import LEADS_OUT, ObjectName, SubPath, leads_out


class ModelCache(RuledModel):
    """A volume on which engines store models from the hub, so that they are downloaded once and not at each launch."""

    rules: ClassVar = (
        ValidationRule(
            f"!has(self.subPath) || !self.subPath.matches('{LEADS_OUT}')",
            "modelCache.subPath leaves the volume through ..: write a folder inside it",
            lambda cache: not leads_out(cache.sub_path),
        ),
    )

    claim_name: ObjectName
    """Name of a PersistentVolumeClaim in the run's namespace."""
    sub_path: SubPath | None = None
    """Folder of the volume. Without it: the whole volume."""
    fill: bool = False
    """true: mount the volume writable, and let engines store on it what they download. false: mount it read-only and
    use only what it contains (HF_HUB_OFFLINE=1); an engine whose model it lacks does not start."""
