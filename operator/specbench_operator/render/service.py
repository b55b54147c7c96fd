"""The Service before an engine. Its selector names the attempt: a client can never reach another launch."""

from __future__ import annotations

from specbench_api.plan.names import ROLE_ENGINE, engine_name
from specbench_api.plan.plan import EngineGroup, Plan
from specbench_api.spec.run import SpecBenchRun
from specbench_operator.render.child import Manifest, metadata, selector
from specbench_operator.render.engine_group import LEADS
from specbench_operator.render.engine_pod import engine_launch
from specbench_operator.state import Place


def engine_service(run: SpecBenchRun, plan: Plan, group: EngineGroup, attempt: int) -> Manifest:
    """A cluster-internal name and port for one launch."""
    place = Place(ROLE_ENGINE, group.index, attempt)
    port = engine_launch(plan, group.arm).port
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(run, engine_name(run.metadata.name, group.index, attempt), place, group.arm),
        "spec": {
            "selector": {**selector(run, place), **(LEADS if run.spec.placement.nodes > 1 else {})},
            "ports": [{"name": "http", "port": port, "targetPort": "http"}],
        },
    }


def endpoint(run: SpecBenchRun, plan: Plan, group: EngineGroup, attempt: int) -> str:
    """The URL under which the client finds it."""
    name = engine_name(run.metadata.name, group.index, attempt)
    return f"http://{name}.{run.metadata.namespace}.svc:{engine_launch(plan, group.arm).port}"
