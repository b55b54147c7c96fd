"""What an oracle is asked about a stored run: what its arms' records tell of each position."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from specbench_api.outcome.cost_model import CostModel
from specbench_api.plan.plan import Arm
from specbench_client.analysis.oracle.charges import draft_cost
from specbench_client.analysis.oracle.records import GAPS, UNTOLD, Recorded, recorded
from specbench_client.analysis.oracle.report import Named, Subject
from specbench_client.analysis.oracle.told import both, single
from specbench_client.drive.answered import Answered
from specbench_client.errors import BadInput

_SEE = "look at the errors in its records"
_REMEDY: Mapping[str, str] = {
    UNTOLD: "which engines tell it stands in docs/records.md (Acceptance): vLLM and the simulator do",
    GAPS: "for n-gram arms ask `specbench replay`, which knows every position",
}


def run_subject(run: Answered, arm: str | None, second: str | None, cost: CostModel | None) -> Subject:
    """`arm`: by default the one with the longest drafts; `second`: with whom combined. Blocks. Raises BadInput."""
    main = _arm(run, "--arm", arm)
    told = _recorded(run, main)
    named = _named(main, told, cost)
    sampling = run.plan.workload(run.workload).sampling
    subject = Subject(
        f"{run.words}, arm {main.name}",
        named,
        simulated=run.simulated,
        sampled=sampling.temperature > 0,
        left_out=told.left_out,
    )
    if second is None:
        return subject
    other = _arm(run, "--with", second)
    if other.name == main.name:
        raise BadInput(f"--with {second}: is the arm itself: give another one")
    found = _recorded(run, other)
    return replace(subject, second=_named(other, found, cost), both=both(found.told, told.told))


def _arm(run: Answered, flag: str, wanted: str | None) -> Arm:
    drafting = [each for each in run.plan.arms if each.drafter is not None]
    if not drafting:
        raise BadInput(f"{run.words}: the run has no drafter: nothing was drafted that could have been drafted longer")
    if wanted is None:
        return max(drafting, key=lambda each: each.drafter.num_speculative_tokens if each.drafter else 0)
    found = next((each for each in drafting if each.name == wanted), None)
    if found is None:
        raise BadInput(f"{flag} {wanted}: the run drafts with {', '.join(each.name for each in drafting)}")
    return found


def _recorded(run: Answered, arm: Arm) -> Recorded:
    rows = run.records(arm.name)
    if not len(rows):
        raise BadInput(f"{run.words}: the arm {arm.name!r} has no measured point yet")
    found = recorded(rows)
    if not found.told:
        reasons = "; ".join(f"{count} x {why}" for why, count in found.left_out.items())
        remedies = "; ".join(_REMEDY[why] for why in found.left_out if why in _REMEDY)
        what = f"{run.words}, arm {arm.name}: no answer tells its steps"
        raise BadInput(f"{what} ({reasons}): {remedies or _SEE}")
    return found


def _named(arm: Arm, found: Recorded, cost: CostModel | None) -> Named:
    assert arm.drafter is not None
    known = draft_cost(cost, arm.name, str(arm.drafter.method))
    return Named(arm.name, single(found.told.values()), known, arm.drafter.num_speculative_tokens)
