"""The settings that deploy a recommendation's arm, or why the evidence allows none.

The settings are rendered by the engine's launcher, so a deployment drafts exactly as the measured engine did.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from specbench_api.api_model import Names, in_words
from specbench_api.launch.launcher import LaunchSpec
from specbench_api.launch.registry import LAUNCHERS, launch_problems, release_of
from specbench_api.outcome.provenance import FactName
from specbench_api.outcome.recommendation import Candidate, Recommendation, RecommendationAnswer, WorkloadChoice
from specbench_api.outcome.summary import RunSummary
from specbench_api.plan.expansion import launch_order
from specbench_api.plan.plan import Arm, Plan
from specbench_api.spec.drafter import BASELINE_NAME
from specbench_api.spec.engine import EngineKind
from specbench_client.errors import BadInput, ClientError, EvidenceInsufficient
from specbench_client.visible_text import visible


class DeploymentFormat(Names):
    """The formats of a deployment's settings."""

    VLLM = "vllm"
    """Flags of `vllm serve`."""
    SGLANG = "sglang"
    """Flags of `sglang.launch_server`."""
    TENSORRT_LLM = "trtllm"
    """YAML of `trtllm-serve --extra_llm_api_options`."""
    LLAMA_CPP = "llama-cpp"
    """Flags of `llama-server`."""
    KSERVE = "kserve"
    """A JSON patch of a KServe InferenceService."""
    LLM_D = "llm-d"
    """Values of the chart llm-d-modelservice."""
    DYNAMO = "dynamo"
    """The part of a DynamoGraphDeployment that has the engine's arguments."""
    HELM_VALUES = "helm-values"
    """`args`, for a chart that passes them to the engine."""


FORMAT_ENGINES: Mapping[DeploymentFormat, tuple[EngineKind, ...]] = {
    DeploymentFormat.VLLM: (EngineKind.VLLM,),
    DeploymentFormat.SGLANG: (EngineKind.SGLANG,),
    DeploymentFormat.TENSORRT_LLM: (EngineKind.TENSORRT_LLM,),
    DeploymentFormat.LLAMA_CPP: (EngineKind.LLAMA_CPP,),
    DeploymentFormat.KSERVE: (EngineKind.VLLM, EngineKind.SGLANG),
    DeploymentFormat.LLM_D: (EngineKind.VLLM,),
    DeploymentFormat.DYNAMO: (EngineKind.VLLM, EngineKind.SGLANG),
    DeploymentFormat.HELM_VALUES: (EngineKind.VLLM, EngineKind.SGLANG, EngineKind.LLAMA_CPP),
}
"""By format, the engines whose settings it can contain: flags fit everywhere, a configuration file only its own."""


@dataclass(frozen=True)
class Deployment:
    """The settings of one arm with their evidence. `choices`: the recommendations for the workloads that it serves."""

    form: DeploymentFormat
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
    form: DeploymentFormat,
    plan: Plan,
    summary: RunSummary,
    recommendation: Recommendation,
    workload: str | None = None,
) -> Deployment:
    """Return the recommended arm's settings for all workloads, or for one.

    Raises BadInput if the format does not fit the run, EvidenceInsufficient if no arm is shown to be worth deploying.
    """
    refusal = _run_refusal(form, plan, summary)
    if refusal is not None:
        raise refusal
    choices = [each for each in recommendation.choices if workload in (None, each.workload)]
    if workload is not None and not choices:
        known = ", ".join(each.workload for each in recommendation.choices) or "none"
        raise BadInput(f"--workload {workload}: the run has no such workload: give one of {known}")
    refusal = _choice_refusal(choices)
    if refusal is not None:
        raise refusal
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
    return Deployment(form, plan, summary, recommendation, tuple(choices), arm, launch)


def _run_refusal(form: DeploymentFormat, plan: Plan, summary: RunSummary) -> ClientError | None:
    """Return why nothing of this run may be deployed in this format; None if something may."""
    kind, option = plan.engine.kind, f"--emit {form}"
    if summary.simulated or kind is EngineKind.SIMULATOR:
        message = f"{option}: the run was simulated, so it is no evidence for an engine: measure a real engine"
        return EvidenceInsufficient(message, "Simulated")
    if plan.engine.is_external:
        origin = "was imported" if plan.engine.is_imported else "measured an endpoint that specbench did not start"
        message = (
            f"{option}: the run {origin}, so its drafter's options are"
            " unknown: copy them from its own deployment, or measure the arm with `specbench run`"
        )
        return EvidenceInsufficient(message, "DrafterUnknown")
    if kind not in FORMAT_ENGINES[form]:
        fitting = [str(each) for each, kinds in FORMAT_ENGINES.items() if kind in kinds]
        remedy = f"use --emit {' or '.join(fitting)}" if fitting else "no format has this engine"
        engines = " or ".join(FORMAT_ENGINES[form])
        message = f"{option}: the run measured {kind}, and a speed-up on it does not hold on {engines}: {remedy}"
        return BadInput(message, "OtherEngine")
    if not summary.trustworthy:
        return EvidenceInsufficient(
            f"{option}: the run is not trustworthy: `specbench report` lists its findings; remove their causes and"
            " measure again",
            "NotTrustworthy",
        )
    return None


_REFUSED_ANSWERS = {
    RecommendationAnswer.NO_DRAFTER: "deploy without a drafter, which needs no settings",
    RecommendationAnswer.CANNOT_TELL: "measure more repeats or prompts",
    RecommendationAnswer.NOTHING_MEETS: "change the targets, or measure other drafters and loads",
}


def _choice_refusal(choices: Sequence[WorkloadChoice]) -> ClientError | None:
    """Return why these recommendations do not name one drafter; None if they do."""
    if not choices:
        return EvidenceInsufficient("nothing was measured: run the file again to continue it", "NothingMeasured")
    refused = [each for each in choices if each.answer in _REFUSED_ANSWERS]
    paying = [f"--workload {each.workload}" for each in choices if each not in refused]
    if refused:
        first = refused[0]
        remedy = _REFUSED_ANSWERS[first.answer] + (f", or give {' or '.join(paying)}" if paying else "")
        message = f"{first.workload}: {in_words(first.answer)}: {first.reason}: {remedy}"
        return EvidenceInsufficient(message, str(first.answer))
    if len({each.arm for each in choices}) > 1:
        arms = "; ".join(f"{each.workload}: {each.arm}" for each in choices)
        message = f"the workloads need different drafters ({arms}): give {' or '.join(paying)}"
        return EvidenceInsufficient(message, "WorkloadsDiffer")
    return None
