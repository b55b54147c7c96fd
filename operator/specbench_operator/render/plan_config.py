"""The plan as an immutable ConfigMap: what the clients of a run are given, unchanged by upgrades of the operator.

Beside it lie the configuration files of the arms' engines, of which each engine's pod is given its own.
"""

from __future__ import annotations

from specbench_api.errors import InvalidSpec
from specbench_api.outcome.layout import PLAN
from specbench_api.plan.expand import too_long
from specbench_api.plan.names import ROLE_PLAN, plan_name
from specbench_api.plan.plan import Plan
from specbench_api.spec.run import SpecBenchRun
from specbench_operator.render.child import Manifest, metadata
from specbench_operator.render.engine_pod import engine_launch
from specbench_operator.render.engine_volumes import config_key
from specbench_operator.state.child import Place


def plan_config(run: SpecBenchRun, plan: Plan) -> Manifest:
    """The ConfigMap. Raises InvalidSpec for a plan that is too large for one with the engines' files beside it."""
    data = {PLAN: plan.to_json(), **_configs(plan)}
    if problems := too_long(data.values()):
        raise InvalidSpec(problems)
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
