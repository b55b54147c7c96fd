"""Reads the input of an oracle from a stored run: the accepted drafts of its arms at each position."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from specbench_api.plan.plan import Arm
from specbench_api.spec.engine import EngineKind
from specbench_client.analysis.what_if.answers import QuestionKey, join_answers, shared_answers
from specbench_client.analysis.what_if.cost_models import draft_cost
from specbench_client.analysis.what_if.ngram import NGRAM, LoggedAnswer, replayed_answer
from specbench_client.analysis.what_if.ngram_lookup import NGRAM_REPLAY, PUBLISHED_LOOKUP
from specbench_client.analysis.what_if.oracle import NamedDrafter, OracleSubject
from specbench_client.analysis.what_if.recorded_answers import (
    STEPS_NOT_REPORTED,
    STEPS_WITHOUT_DRAFTS,
    RecordedAnswers,
    recorded_answers,
)
from specbench_client.documents.cost_model import CostModel
from specbench_client.errors import BadInput
from specbench_client.stored_runs.ngram_inputs import TextEncoding, read_logged_answers
from specbench_client.stored_runs.records import StoredRun

_END_TOKEN = -1
_ERRORS_HINT = "look at the errors in its records"
_REMEDY: Mapping[str, str] = {
    STEPS_NOT_REPORTED: "use an engine that reports it, such as vLLM or the simulator (docs/reference/records.md)",
    STEPS_WITHOUT_DRAFTS: "for n-gram use `specbench analyze ngram` or --with replay, which compute every position",
}


@dataclass(frozen=True)
class OracleRequest:
    """The drafters to analyse.

    `arm`: by default the arm with the longest drafts among those with reported steps. `second`: drafter to combine it
    with; NGRAM_REPLAY for replayed n-gram drafting.
    """

    arm: str | None = None
    second: str | None = None
    texts: TextEncoding = field(default_factory=TextEncoding)


def read_oracle_subject(run: StoredRun, request: OracleRequest, cost: CostModel | None) -> OracleSubject:
    """Read the arm's answers, and those of the second drafter. Blocks. Raises BadInput."""
    main, recorded = _main_arm(run, request.arm)
    named = _named_drafter(main, recorded, cost)
    sampling = run.plan.workload(run.workload).sampling
    subject = OracleSubject(
        f"{run.words}, arm {main.name}",
        named,
        simulated=run.simulated,
        sampled=sampling.temperature > 0,
        left_out=recorded.left_out,
    )
    if request.second is None:
        return subject
    if request.second == NGRAM_REPLAY:
        return _with_replay(run, subject, recorded, request.texts, cost)
    other = _drafting_arm(run, "--with", request.second)
    if other.name == main.name:
        raise BadInput(f"--with {request.second}: is the arm itself: give another one")
    found = _recorded_steps(run, other)
    both = shared_answers(found.answers, recorded.answers)
    return replace(subject, second=_named_drafter(other, found, cost), both=both)


def _with_replay(
    run: StoredRun, subject: OracleSubject, recorded: RecordedAnswers, texts: TextEncoding, cost: CostModel | None
) -> OracleSubject:
    """Combine with n-gram drafting, replayed over the answers with known steps and the same number of tokens."""
    logged = _aligned_answers(run, subject.main.name, recorded, texts)
    own = {
        key: replace(each, ids=logged[key].output) if key in logged else each for key, each in recorded.answers.items()
    }
    found = {key: replayed_answer(each, PUBLISHED_LOOKUP) for key, each in logged.items()}
    second = NamedDrafter(NGRAM, join_answers(found.values()), draft_cost(cost, NGRAM))
    return replace(subject, second=second, both=shared_answers(found, own))


def _aligned_answers(
    run: StoredRun, arm: str, recorded: RecordedAnswers, texts: TextEncoding
) -> dict[QuestionKey, LoggedAnswer]:
    """Return the answers with as many token ids as their steps emitted.

    The end token has no text, so an answer may lack one id; it gets an id that matches no other token.
    """
    whole: dict[QuestionKey, LoggedAnswer] = {}
    for key, each in read_logged_answers(run, arm, texts).logged.items():
        missing = recorded.answers[key].tokens - each.output.size if key in recorded.answers else -1
        if missing in (0, 1):
            whole[key] = replace(each, output=np.append(each.output, [_END_TOKEN] * missing).astype(np.int64))
    return whole


def _main_arm(run: StoredRun, requested: str | None) -> tuple[Arm, RecordedAnswers]:
    """Return the requested arm, or the arm with the longest drafts among those with reported steps."""
    if requested is not None:
        arm = _drafting_arm(run, "--arm", requested)
        return arm, _recorded_steps(run, arm)
    rejected = list[BadInput]()
    for arm in sorted(_drafting_arms(run), key=lambda arm: arm.most_drafts, reverse=True):
        try:
            return arm, _recorded_steps(run, arm)
        except BadInput as error:  # n-gram has the longest drafts but often no steps, so the next arm is tried
            rejected.append(error)
    raise rejected[0]


def _drafting_arm(run: StoredRun, flag: str, name: str) -> Arm:
    drafting = _drafting_arms(run)
    found = next((each for each in drafting if each.name == name), None)
    if found is None:
        raise BadInput(f"{flag} {name}: the run drafts with {', '.join(each.name for each in drafting)}")
    return found


def _drafting_arms(run: StoredRun) -> list[Arm]:
    """Return the arms whose drafter the plan declares. Raises BadInput where there is none."""
    drafting = [each for each in run.plan.arms if each.drafter is not None]
    if drafting:
        return drafting
    if run.plan.engine.kind is EngineKind.EXTERNAL:
        # `specbench measure` sees an endpoint's accepted tokens, but not how many it drafted at most in a step.
        raise BadInput(
            f"{run.words}: the run measured an endpoint, so its plan declares no drafter and no draft length, which an"
            " oracle needs: measure the same drafter with `specbench run`, or give an engine's trace as FILE"
        )
    raise BadInput(f"{run.words}: the run has the baseline alone: add an arm with a drafter and measure it")


def _recorded_steps(run: StoredRun, arm: Arm) -> RecordedAnswers:
    rows = run.records(arm.name)
    if not len(rows):
        message = f"the arm {arm.name!r} has no measured point yet: wait for the run, or choose another arm"
        raise BadInput(f"{run.words}: {message}")
    found = recorded_answers(rows)
    if not found.answers:
        reasons = "; ".join(f"{count} x {why}" for why, count in found.left_out.items())
        remedies = "; ".join(_REMEDY[why] for why in found.left_out if why in _REMEDY)
        what = f"{run.words}, arm {arm.name}: no answer has all its steps recorded"
        raise BadInput(f"{what} ({reasons}): {remedies or _ERRORS_HINT}")
    return found


def _named_drafter(arm: Arm, found: RecordedAnswers, cost: CostModel | None) -> NamedDrafter:
    assert arm.drafter is not None
    known = draft_cost(cost, arm.name, str(arm.drafter.method))
    return NamedDrafter(arm.name, join_answers(found.answers.values()), known, arm.most_drafts)
