"""A run that carries on an earlier one's results: they must be there, and of a plan that measures the very same.

Its points have the same hashes as the earlier run's, so what is measured is found as if this run had measured it; where
names and order alone are others, it goes on by the earlier plan (`reconcile.planned`). The client refuses another plan
too, but only once an engine serves; here it costs nothing.
"""

from __future__ import annotations

from pydantic import ValidationError

from specbench_api.errors import InvalidSpec, Problem
from specbench_api.outcome.layout import PLAN
from specbench_api.plan.plan import Plan
from specbench_api.plan.same import differing
from specbench_operator.reconcile.scene import Scene
from specbench_operator.render.client_pod import results_uri

PATH = "spec.results.adopt"
_REMEDY = "take the spec that `specbench import` makes of those results, or leave adopt out to measure anew"


def refuse_other_results(scene: Scene) -> None:
    """Raises InvalidSpec where S3 has answered and what lies there is not this run's to carry on."""
    if scene.run.spec.results.adopt is None or scene.stored is None:
        return
    uri = results_uri(scene.run)
    if scene.stored.plan_json is None:
        remedy = "give the UID of a run of this namespace and name, whose results lie below this bucket and prefix"
        raise InvalidSpec([Problem(PATH, f"no results lie at {uri}", remedy)])
    try:
        there = Plan.from_json(scene.stored.plan_json)
    except ValidationError as error:
        message = f"{uri}/{PLAN} is damaged, or was written by another version of specbench"
        raise InvalidSpec([Problem(PATH, message, "leave adopt out to measure anew")]) from error
    if names := ", ".join(differing(there, scene.plan)):
        raise InvalidSpec([Problem(PATH, f"the results at {uri} are of another plan: {names} differ", _REMEDY)])
