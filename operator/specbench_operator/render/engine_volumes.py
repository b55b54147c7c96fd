"""What an engine's pod has mounted: shared memory, the model's volume, the hub's cache, its configuration files."""

from __future__ import annotations

from typing import Any

from specbench_api.launch.launch import CONFIG_FOLDER, Launch
from specbench_api.launch.weights import MOUNTED
from specbench_api.plan.names import plan_name
from specbench_api.spec.run import SpecBenchRun
from specbench_operator.render.child import Manifest, empty_dir

CACHE_FOLDER = "/var/cache/specbench/hub"
"""Where the volume of `spec.placement.modelCache` is mounted."""


def config_key(arm: str, name: str) -> str:
    """Where an arm's configuration file lies in the plan's ConfigMap."""
    return f"{arm}.{name}"


def volumes(run: SpecBenchRun, launch: Launch, arm: str) -> list[Manifest]:
    """Volumes of the pod. One claim that holds models and cache alike stands there twice: one of them is read-only."""
    pvc, cache = run.spec.model.pvc, run.spec.placement.model_cache
    found = [_shared_memory(run), empty_dir("tmp")]
    if pvc:
        found.append(_claim("models", pvc.claim_name, readOnly=True))
    if cache:
        found.append(_claim("cache", cache.claim_name))
    if launch.configs:
        items = [{"key": config_key(arm, name), "path": name} for name in launch.configs]
        found.append({"name": "config", "configMap": {"name": plan_name(run.metadata.name), "items": items}})
    return found


def mounts(run: SpecBenchRun, launch: Launch) -> list[Manifest]:
    """Where its container has them."""
    pvc, cache = run.spec.model.pvc, run.spec.placement.model_cache
    found: list[Manifest] = [{"name": "shm", "mountPath": "/dev/shm"}, {"name": "tmp", "mountPath": "/tmp"}]  # noqa: S108 - a mount, not a file
    if pvc:
        found.append({"name": "models", "mountPath": MOUNTED, "readOnly": True, **_sub_path(pvc.sub_path)})
    if cache:
        found.append({"name": "cache", "mountPath": CACHE_FOLDER, **_sub_path(cache.sub_path)})
    if launch.configs:
        found.append({"name": "config", "mountPath": CONFIG_FOLDER, "readOnly": True})
    return found


def _shared_memory(run: SpecBenchRun) -> Manifest:
    most = run.spec.placement.shared_memory
    volume = empty_dir("shm", "Memory")
    return {**volume, "emptyDir": {**volume["emptyDir"], "sizeLimit": most}} if most else volume


def _claim(name: str, claim: str, **more: Any) -> Manifest:
    return {"name": name, "persistentVolumeClaim": {"claimName": claim, **more}}


def _sub_path(folder: str | None) -> Manifest:
    return {"subPath": folder} if folder else {}
