"""What an oracle is asked about a stored run: what its arms' records tell of each position."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from specbench_api.outcome.cost_model import CostModel
from specbench_api.plan.plan import Arm
from specbench_client.analysis.oracle.charges import draft_cost
from specbench_client.analysis.oracle.records import GAPS, UNTOLD, Recorded, recorded
from specbench_client.analysis.oracle.report import Named, Subject
from specbench_client.analysis.oracle.told import Key, both, single
from specbench_client.analysis.replay.lookup import Lookup
from specbench_client.analysis.replay.report import NGRAM, Logged, told_by_replay
from specbench_client.drive.answered import Answered
from specbench_client.drive.logged import Texts, logged_of
from specbench_client.errors import BadInput

REPLAY = "replay"
LIKE_VLLM = Lookup(3, 7, 20)
"""prompt_lookup_min and prompt_lookup_max as papers have them, and drafts without an end in practice."""
_THE_END = -1
_SEE = "look at the errors in its records"
_REMEDY: Mapping[str, str] = {
    UNTOLD: "which engines tell it stands in docs/records.md (Acceptance): vLLM and the simulator do",
    GAPS: "of n-gram `specbench replay` knows every position, and so does --with replay",
}


@dataclass(frozen=True)
class Asked:
    """Whose drafts. `arm`: by default the one with the longest drafts that tells its steps.

    `second`: with whom combined; REPLAY for n-gram, replayed.
    """

    arm: str | None = None
    second: str | None = None
    texts: Texts = field(default_factory=Texts)


def run_subject(run: Answered, asked: Asked, cost: CostModel | None) -> Subject:
    """The arm's answers, and those of whom it is combined with. Blocks. Raises BadInput."""
    main, told = _main(run, asked.arm)
    named = _named(main, told, cost)
    sampling = run.plan.workload(run.workload).sampling
    subject = Subject(
        f"{run.words}, arm {main.name}",
        named,
        simulated=run.simulated,
        sampled=sampling.temperature > 0,
        left_out=told.left_out,
    )
    if asked.second is None:
        return subject
    if asked.second == REPLAY:
        return _with_replay(run, subject, told, asked.texts, cost)
    other = _arm(run, "--with", asked.second)
    if other.name == main.name:
        raise BadInput(f"--with {asked.second}: is the arm itself: give another one")
    found = _recorded(run, other)
    return replace(subject, second=_named(other, found, cost), both=both(found.told, told.told))


def _with_replay(run: Answered, subject: Subject, told: Recorded, texts: Texts, cost: CostModel | None) -> Subject:
    """n-gram, replayed over the very answers whose steps are known, where their tokens are as many."""
    logged = _aligned(run, subject.main.name, told, texts)
    own = {key: replace(each, ids=logged[key].output) if key in logged else each for key, each in told.told.items()}
    found = {key: told_by_replay(each, LIKE_VLLM) for key, each in logged.items()}
    second = Named(NGRAM, single(found.values()), draft_cost(cost, NGRAM))
    return replace(subject, second=second, both=both(found, own))


def _aligned(run: Answered, arm: str, told: Recorded, texts: Texts) -> dict[Key, Logged]:
    """Answers with as many token ids as steps tell; the end of a text, which has none, is a token like no other."""
    whole: dict[Key, Logged] = {}
    for key, each in logged_of(run, arm, texts).logged.items():
        missing = told.told[key].tokens - each.output.size if key in told.told else -1
        if missing in (0, 1):
            whole[key] = replace(each, output=np.append(each.output, [_THE_END] * missing).astype(np.int64))
    return whole


def _main(run: Answered, wanted: str | None) -> tuple[Arm, Recorded]:
    """The arm that is asked for; without one, of those that tell their steps the one with the longest drafts."""
    if wanted is not None:
        arm = _arm(run, "--arm", wanted)
        return arm, _recorded(run, arm)
    refused = list[BadInput]()
    for arm in sorted(_drafting(run), key=lambda arm: arm.most_drafts, reverse=True):
        try:
            return arm, _recorded(run, arm)
        except BadInput as error:  # n-gram drafts longest and tells least; the others may be asked all the same
            refused.append(error)
    raise refused[0]


def _arm(run: Answered, flag: str, wanted: str) -> Arm:
    drafting = _drafting(run)
    found = next((each for each in drafting if each.name == wanted), None)
    if found is None:
        raise BadInput(f"{flag} {wanted}: the run drafts with {', '.join(each.name for each in drafting)}")
    return found


def _drafting(run: Answered) -> list[Arm]:
    drafting = [each for each in run.plan.arms if each.drafter is not None]
    if not drafting:
        raise BadInput(f"{run.words}: the run has no drafter: nothing was drafted that could have been drafted longer")
    return drafting


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
    return Named(arm.name, single(found.told.values()), known, arm.most_drafts)
