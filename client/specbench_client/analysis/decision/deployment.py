"""The settings that deploy a recommendation's arm, or why the evidence allows none.

The settings are rendered by the engine's launcher, so a deployment drafts exactly as the measured engine did.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from specbench_api.api_model import in_words
from specbench_api.launch.launcher import LaunchSpec
from specbench_api.launch.registry import LAUNCHERS, launch_problems, release_of
from specbench_api.outcome.provenance import FactName
from specbench_api.plan.expansion import launch_order
from specbench_api.plan.plan import Arm, Plan
from specbench_api.spec.drafter import BASELINE_NAME
from specbench_api.spec.engine import EngineKind
from specbench_client.documents.recommendation import Candidate, Recommendation, RecommendationAnswer, WorkloadChoice
from specbench_client.documents.summary import RunSummary
from specbench_client.errors import BadInput, EvidenceInsufficient
from specbench_client.visible_text import visible


@dataclass(frozen=True)
class Deployment:
    """The settings of one arm with their evidence. `choices`: the recommendations for the workloads that it serves."""

    plan: Plan
    summary: RunSummary
    recommendation: Recommendation
    choices: tuple[WorkloadChoice, ...]
    arm: Arm
    launch: LaunchSpec

    @property
    def candidates(self) -> list[Candidate]:
        """The arm at every load of these workloads."""
        workloads = {choice.workload for choice in self.choices}
        found = self.recommendation.candidates
        return [each for each in found if each.arm == self.arm.name and each.workload in workloads]

    @property
    def baseline(self) -> LaunchSpec:
        """The launch of the same engine without a drafter: what the measured arms have in common."""
        plain = Arm(name=BASELINE_NAME)
        plan = self.plan.model_copy(update={"arms": [plain]})
        return LAUNCHERS[self.plan.engine.kind].launch(launch_order(plan, plain))

    @property
    def engine_version(self) -> str:
        """The version that the engine reported, else the one of the plan."""
        facts = (each.facts.get(FactName.ENGINE_VERSION) for each in self.summary.arm_environments)
        reported = dict.fromkeys(str(fact.value) for fact in facts if fact is not None and fact.value is not None)
        return ", ".join(reported) or release_of(self.plan.engine) or "version not recorded"


def deployment_of(
    plan: Plan, summary: RunSummary, recommendation: Recommendation, workload: str | None = None
) -> Deployment:
    """Return the recommended arm's settings for all workloads, or for one.

    Raises BadInput for an unknown workload, EvidenceInsufficient if no arm is shown to be worth deploying.
    """
    _reject_run(plan, summary)
    choices = [each for each in recommendation.choices if workload in (None, each.workload)]
    if workload is not None and not choices:
        known = ", ".join(each.workload for each in recommendation.choices) or "none"
        raise BadInput(f"--workload {workload}: the run has no such workload: give one of {known}")
    _reject_choices(choices)
    arm = plan.arm(str(choices[0].arm))
    order = launch_order(plan, arm)
    problems = "; ".join(map(str, launch_problems(order)))
    if problems:
        message = f"this version of specbench cannot render {arm.name}: {problems}: measure the arm again"
        raise EvidenceInsufficient(message, "NotRenderable")
    launch = LAUNCHERS[plan.engine.kind].launch(order)
    hidden = next((each for each in launch.drafting if visible(each) != each or "\n" in each), None)
    if hidden is not None:
        message = f"{arm.name}: its argument {hidden!a} has characters that cannot be shown: measure it without them"
        raise EvidenceInsufficient(message, "NotRenderable")
    return Deployment(plan, summary, recommendation, tuple(choices), arm, launch)


def _reject_run(plan: Plan, summary: RunSummary) -> None:
    """Raise EvidenceInsufficient if nothing of this run may be deployed."""
    kind = plan.engine.kind
    if summary.simulated or kind is EngineKind.SIMULATOR:
        message = "the run was simulated, so it is no evidence for an engine: measure a real engine"
        raise EvidenceInsufficient(message, "Simulated")
    if plan.engine.is_external:
        origin = "was imported" if plan.engine.is_imported else "measured an endpoint that specbench did not start"
        message = (
            f"the run {origin}, so its drafter's options are"
            " unknown: copy them from its own deployment, or measure the arm with `specbench run`"
        )
        raise EvidenceInsufficient(message, "DrafterUnknown")
    if kind is EngineKind.TRANSFORMERS:
        message = f"the run measured {kind}, which is for research: measure the arm on the engine that you deploy"
        raise EvidenceInsufficient(message, "ResearchRuntime")
    if not summary.trustworthy:
        raise EvidenceInsufficient(
            "the run is not trustworthy: its report lists the findings; remove their causes and measure again",
            "NotTrustworthy",
        )


_REFUSED_ANSWERS = {
    RecommendationAnswer.NO_DRAFTER: "deploy without a drafter, which needs no settings",
    RecommendationAnswer.INCONCLUSIVE: "measure more repeats or prompts",
    RecommendationAnswer.NOTHING_MEETS: "change the targets, or measure other drafters and loads",
}


def _reject_choices(choices: Sequence[WorkloadChoice]) -> None:
    """Raise EvidenceInsufficient if these recommendations do not name one drafter."""
    if not choices:
        raise EvidenceInsufficient("nothing was measured: run the file again to continue it", "NothingMeasured")
    refused = [each for each in choices if each.answer in _REFUSED_ANSWERS]
    paying = [f"--workload {each.workload}" for each in choices if each not in refused]
    if refused:
        first = refused[0]
        remedy = _REFUSED_ANSWERS[first.answer] + (f", or give {' or '.join(paying)}" if paying else "")
        message = f"{first.workload}: {in_words(first.answer)}: {first.why}: {remedy}"
        raise EvidenceInsufficient(message, str(first.answer))
    if len({each.arm for each in choices}) > 1:
        arms = "; ".join(f"{each.workload}: {each.arm}" for each in choices)
        message = f"the workloads need different drafters ({arms}): give {' or '.join(paying)}"
        raise EvidenceInsufficient(message, "WorkloadsDiffer")
