"""Plan → the run that it was made from: what is left of a run whose resource was lost is what lies in its results."""

from __future__ import annotations

from specbench_api.errors import InvalidSpec, Problem
from specbench_api.plan.expand import ENDPOINT_NAME, expand
from specbench_api.plan.plan import Plan
from specbench_api.spec.results import S3, Results
from specbench_api.spec.run import Metadata, RunSpec, SpecBenchRun


def restore(plan: Plan, s3: S3) -> SpecBenchRun:
    """The run, made to carry on the results of that plan, which lie in `s3`.

    Deadlines, suspend and the like, which no plan holds, are as by default. Raises InvalidSpec where this version would
    plan something else: what is measured would then not be found.
    """
    run = SpecBenchRun(
        metadata=Metadata(name=plan.name, namespace=plan.namespace),
        spec=RunSpec(
            model=plan.target,
            engine=plan.engine,
            drafters=[arm.drafter for arm in plan.arms if arm.drafter],
            baseline="Measure" if _has_reference(plan) else "Skip",
            workloads=plan.workloads,
            load=plan.load,
            placement=plan.placement,
            results=Results(s3=s3, adopt=plan.uid),
        ),
    )
    if expand(run) != plan:
        message = "this version of specbench plans it otherwise, and would measure all of it again"
        remedy = "use the version that measured it: every point's manifest.json names it"
        raise InvalidSpec([Problem("plan.json", message, remedy)])
    return run


def _has_reference(plan: Plan) -> bool:
    return any(arm.is_baseline or arm.name == ENDPOINT_NAME for arm in plan.arms)
