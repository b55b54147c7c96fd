"""Parts of `spec.placement` that set up the engine's pods: shared memory, model cache, user and groups."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from specbench_api.api_model import RuledModel, ValidationRule
from specbench_api.spec.patterns import LEADS_OUT, ObjectName, SubPath, leads_out

SHARED_MEMORY = "32Gi"
"""Size of /dev/shm unless the run sets sharedMemory: what SGLang's documentation uses for eight GPUs."""


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


UserId = Annotated[int, Field(ge=0, le=2**31 - 1)]


class EngineSecurityContext(RuledModel):
    """The user and groups of the engine's pods, as in `spec.securityContext` of a pod.

    Everything else of their security context is fixed: no capabilities except those of `template`, no privilege
    escalation, and the seccomp profile RuntimeDefault.
    """

    rules: ClassVar = (
        ValidationRule(
            "!has(self.runAsNonRoot) || !self.runAsNonRoot || !has(self.runAsUser) || self.runAsUser != 0",
            "securityContext.runAsUser 0 is root, which runAsNonRoot excludes: set another user, or remove"
            " runAsNonRoot",
            lambda context: not context.run_as_non_root or context.run_as_user != 0,
        ),
    )

    run_as_user: UserId | None = None
    """User ID. Without it: the image's user. The how-to about restricted namespaces lists the users that each engine's
    image supports."""
    run_as_group: UserId | None = None
    """Primary group ID. Without it: the image's group."""
    run_as_non_root: bool | None = None
    """true: the pod does not start as root. Pod Security level `restricted` requires it. Without it: true only for
    specbench's own image (kind simulator)."""
    fs_group: UserId | None = None
    """Group ID that owns the pod's volumes, so that another user than root can write to a model cache."""
