"""Where an engine finds its models: on its own disk, or by name on a hub."""

from __future__ import annotations

from specbench_api.launch.launch import Order
from specbench_api.spec.target import Target

MOUNTED = "/models"
"""Where a pod has the volume of `spec.model.pvc`."""
MAIN = "main"


def path_of(target: Target) -> str | None:
    """The target's path where the engine runs; None: it is fetched by its name."""
    return f"{MOUNTED}/{target.pvc.path.lstrip('/')}" if target.pvc else target.path


def pinned(target: Target) -> str | None:
    """The revision to ask of the hub, where it is not what a hub gives by itself."""
    return target.revision if path_of(target) is None and target.revision != MAIN else None


def models_of(order: Order) -> tuple[dict[str, str], dict[str, str]]:
    """What it reads from its own disk, and what it fetches from the hub, each by the field that names it."""
    files, hub = dict[str, str](), dict[str, str]()
    target, drafter = order.target, order.drafter
    path = path_of(target)
    if path:
        files["spec.model.pvc" if target.pvc else "spec.model.path"] = path
    else:
        hub["spec.model.name"] = target.name
    if drafter and drafter.model:
        is_path = drafter.model.startswith(("/", ".", "~"))
        (files if is_path else hub)[f"{order.drafter_path}.model"] = drafter.model
    return files, hub
