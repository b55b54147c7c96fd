"""The plan as an immutable ConfigMap: what the clients of a run are given, unchanged by upgrades of the operator.

Beside it lie the configuration files of the arms' engines, of which each engine's pod is given its own.
"""

from __future__ import annotations

from specbench_api.errors import InvalidSpec, Problem
from specbench_api.outcome.layout import PLAN
from specbench_api.plan.expand import PLAN_BYTES_MAX
from specbench_api.plan.names import ROLE_PLAN, plan_name
from specbench_api.plan.plan import Plan
from specbench_api.spec.run import SpecBenchRun
from specbench_operator.render.child import Manifest, metadata
from specbench_operator.render.engine_job import config_key, engine_launch
from specbench_operator.state import Place


def plan_config(run: SpecBenchRun, plan: Plan) -> Manifest:
    """The ConfigMap. Raises InvalidSpec for a plan that is too large for one with the engines' files beside it."""
    data = {PLAN: plan.to_json(), **_configs(plan)}
    size = sum(len(text.encode()) for text in data.values())
    if size > PLAN_BYTES_MAX:
        message = f"its plan has {size} bytes and a ConfigMap holds {PLAN_BYTES_MAX}"
        remedy = "split it: fewer workloads, load levels or repeats in one run"
        raise InvalidSpec([Problem("spec", message, remedy)])
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(run, plan_name(run.metadata.name), Place(ROLE_PLAN)),
        "immutable": True,
        "data": data,
    }


def _configs(plan: Plan) -> dict[str, str]:
    launches = {arm.name: engine_launch(plan, arm.name) for arm in plan.arms}
    return {config_key(arm, name): text for arm, launch in launches.items() for name, text in launch.configs.items()}
