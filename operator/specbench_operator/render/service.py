"""The Service before an engine, of one launch alone: a client can never reach another launch.

Its selector names the attempt that the engine's Job was created for. A Job that starts over keeps its labels, and the
launch that it then serves has a Service of another name: a client of the launch before finds nothing any more.
"""

from __future__ import annotations

from specbench_api.plan.names import ROLE_ENGINE, engine_name
from specbench_api.plan.plan import EngineGroup, Plan
from specbench_api.spec.run import SpecBenchRun
from specbench_operator.render.child import Manifest, metadata, selector
from specbench_operator.render.engine_group import LEADS
from specbench_operator.render.engine_pod import engine_launch
from specbench_operator.state.child import Place


def engine_service(run: SpecBenchRun, plan: Plan, group: EngineGroup, attempt: int, job: int | None = None) -> Manifest:
    """A cluster-internal name and port for one launch. `job`: the attempt of its Job, where that started over."""
    place = Place(ROLE_ENGINE, group.index, attempt)
    port = engine_launch(plan, group.arm).port
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(run, engine_name(run.metadata.name, group.index, attempt), place, group.arm),
        "spec": {
            "selector": {
                **selector(run, Place(ROLE_ENGINE, group.index, attempt if job is None else job)),
                **(LEADS if run.spec.placement.nodes > 1 else {}),
            },
            "ports": [{"name": "http", "port": port, "targetPort": "http"}],
        },
    }


def endpoint(run: SpecBenchRun, plan: Plan, group: EngineGroup, attempt: int) -> str:
    """The URL under which the client finds it."""
    name = engine_name(run.metadata.name, group.index, attempt)
    return f"http://{name}.{run.metadata.namespace}.svc:{engine_launch(plan, group.arm).port}"
