"""Reads the inputs of n-gram replay and of an oracle from a stored run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from specbench_api.plan.plan import Arm, Plan, Point
from specbench_api.spec.drafter import BASELINE_NAME
from specbench_api.spec.engine import EngineKind
from specbench_client.analysis.what_if.answers import (
    COLUMNS,
    REQUEST_FAILED,
    STEPS_NOT_REPORTED,
    STEPS_WITHOUT_DRAFTS,
    RecordedAnswers,
    Tokens,
    join_answers,
    recorded_answers,
)
from specbench_client.analysis.what_if.ngram import AnswerLog, LoggedAnswer
from specbench_client.analysis.what_if.oracle import OracleSubject
from specbench_client.analysis.what_if.policies import draft_cost
from specbench_client.chat import ChatMessage
from specbench_client.documents.record import RecordPhase
from specbench_client.documents.what_if import CostModel
from specbench_client.errors import BadInput
from specbench_client.load.conversations import is_filler
from specbench_client.stored_runs.run import Run
from specbench_client.workload.prompt_lengths import TokenEncoder
from specbench_client.workload.prompts import load_workload
from specbench_client.workload.row_parsing import Prompt

LATER_TURN = "a later turn: its prompt contains earlier answers"
NO_TOKENS_NOR_TEXT = "neither token ids nor text in the record"
_KEEP_TEXT_HINT = (
    "measure again, as a new run, with --keep-text; then give this command --tokenizer: the target's tokenizer.json,"
    " its folder, or o200k_base for an estimate"
)
_MESSAGE_SEPARATOR = "\n\n"


@dataclass(frozen=True)
class RunLoad:
    """One workload and load level of a stored run, and how its texts are converted to token ids."""

    run: Run
    workload: str
    load: str
    encoder: TokenEncoder | None = None
    prompts: Path | None = None
    """File of the prompts, if it is not at the path in the plan."""

    @property
    def plan(self) -> Plan:
        """The run's plan."""
        return self.run.plan

    @property
    def simulated(self) -> bool:
        """Whether the engine was the simulator."""
        return self.plan.engine.kind is EngineKind.SIMULATOR

    @property
    def words(self) -> str:
        """Name of the run, workload and load, for titles and messages."""
        return f"{self.plan.name}, {self.workload}, load {self.load}"

    def points(self, arm: str) -> list[Point]:
        """Return the arm's points, measured or not."""
        cell = (arm, self.workload, self.load)
        return [each for each in self.plan.points if (each.arm, each.workload, each.level.label) == cell]

    def answers(self, arm: str) -> Iterator[Mapping[str, Any]]:
        """Yield the measured records of all repeats as dictionaries. Blocks. Raises BadInput, NotDurable."""
        measured = [point.hash for point in self.points(arm) if point.hash in self.run.manifests]
        if not measured:
            message = f"the arm {arm!r} has no measured point yet: wait for the run, or choose another arm"
            raise BadInput(f"{self.words}: {message}")
        for point in measured:
            for part in self.run.records.columns(point, COLUMNS):
                for row in part.to_pylist():
                    if row["phase"] != RecordPhase.WARMUP and not is_filler(row["prompt_id"]):
                        yield row


def load_of(
    run: Run,
    workload: str | None,
    load: str | None,
    *,
    encoder: TokenEncoder | None = None,
    prompts: Path | None = None,
) -> RunLoad:
    """Return a workload and load of a run, by default the first ones. Raises BadInput if it has none of that name."""
    points = run.plan.points
    workload = _one_of("--workload", workload, list(dict.fromkeys(each.workload for each in points)))
    levels = sorted((each.level for each in points if each.workload == workload), key=lambda level: level.order)
    load = _one_of("--load", load, list(dict.fromkeys(level.label for level in levels)))
    return RunLoad(run, workload, load, encoder, prompts)


def _one_of(flag: str, requested: str | None, available: Sequence[str], verb: str = "has") -> str:
    """Return what was requested, else the first that is available. Raises BadInput for another one."""
    if requested is None:
        return available[0]
    if requested not in available:
        raise BadInput(f"{flag} {requested}: the run {verb} {', '.join(available)}")
    return requested


def read_ngram_log(run: RunLoad, arm: str | None) -> AnswerLog:
    """Return the first turns of an arm (by default the baseline) as token ids. Blocks.

    Raises BadInput if neither ids nor texts were recorded, or the prompts have changed since.
    """
    names = [each.name for each in run.plan.arms]
    arm = _one_of("--arm", arm or (BASELINE_NAME if BASELINE_NAME in names else None), names)
    # Answers with as many token ids as the engine counted, or one less, since the end token has no text.
    logged, left_out, alike = list[LoggedAnswer](), Counter[str](), 0
    prompts: dict[str, Prompt] | None = None  # read only once an answer needs them
    for row in run.answers(arm):
        why = _unusable_reason(row)
        if why:
            left_out[why] += 1
            continue
        output = _output_tokens(row, run.encoder)
        prompts = _measured_prompts(run, arm) if prompts is None else prompts
        prompt = _prompt_tokens(prompts[row["prompt_id"]], run.encoder)
        alike += row["output_tokens"] is not None and 0 <= row["output_tokens"] - output.size <= 1
        logged.append(LoggedAnswer(row["prompt_id"], row["category"], prompt, output, row["repeat"]))
    if not logged:
        reasons = _reasons(left_out)
        raise BadInput(f"{run.words}, arm {arm}: no answer can be replayed ({reasons}): {_KEEP_TEXT_HINT}")
    origin = "the engine's own"
    if run.encoder is not None:
        origin = f"the engine's where it reported them, else of texts by {run.encoder.description}"
    origin = f"{origin}; {alike:,} of {len(logged):,} answers have as many as the engine counted"
    return AnswerLog(f"{run.words}, arm {arm}", origin, logged, left_out, run.simulated)


def _reasons(left_out: Mapping[str, int]) -> str:
    return "; ".join(f"{why}: {count}" for why, count in left_out.items())


def _unusable_reason(row: Mapping[str, Any]) -> str | None:
    if row["error_class"] is not None:
        return REQUEST_FAILED
    if row["turn"] > 0:
        return LATER_TURN
    return NO_TOKENS_NOR_TEXT if row["output_token_ids"] is None and row["output_text"] is None else None


def _output_tokens(row: Mapping[str, Any], encoder: TokenEncoder | None) -> Tokens:
    ids = row["output_token_ids"]
    return _encode(row["output_text"], encoder) if ids is None else np.array(ids, dtype=np.int64)


def _prompt_tokens(prompt: Prompt, encoder: TokenEncoder | None) -> Tokens:
    messages: tuple[ChatMessage, ...] = prompt.turns[0]
    if messages[0].token_ids is not None:
        return np.array(messages[0].token_ids, dtype=np.int64)
    return _encode(_MESSAGE_SEPARATOR.join(each.content for each in messages), encoder)


def _encode(text: str, encoder: TokenEncoder | None) -> Tokens:
    if encoder is None:
        which = "the target's tokenizer.json or its folder, or o200k_base for an estimate"
        raise BadInput(f"the records contain texts, and drafts are looked up in tokens: add --tokenizer, {which}")
    return np.array(encoder.encode(text), dtype=np.int64)


def _measured_prompts(run: RunLoad, arm: str) -> dict[str, Prompt]:
    """Return the prompts that were measured, by id. Raises BadInput if they are missing or have changed."""
    workload = run.plan.workload(run.workload)
    if run.prompts is not None:
        dataset = workload.dataset.model_copy(update={"uri": str(run.prompts)})
        workload = workload.model_copy(update={"dataset": dataset})
    try:
        found = load_workload(workload, Path())
    except BadInput as error:
        raise BadInput(f"{error}; the run's prompts are needed: give their file with --prompts") from error
    manifests = [run.run.manifests[each.hash] for each in run.points(arm) if each.hash in run.run.manifests]
    if {manifest.observed.dataset_fingerprint for manifest in manifests} - {found.fingerprint}:
        raise BadInput(
            f"{workload.dataset.where}: these are not the prompts that were measured: give their file with --prompts"
        )
    return {each.id: each for each in found.rows}


# The input of an oracle: the accepted drafts of the run's arms at each position.

_ERRORS_HINT = "look at the errors in its records"
_REMEDY: Mapping[str, str] = {
    STEPS_NOT_REPORTED: "use an engine that reports it, such as vLLM or the simulator",
    STEPS_WITHOUT_DRAFTS: "for n-gram use `specbench analyze ngram`, which covers every position",
}


def read_oracle_subject(run: RunLoad, name: str | None = None, cost: CostModel | None = None) -> OracleSubject:
    """Read the arm's answers. Blocks. Raises BadInput.

    `name`: by default that of the arm with the longest drafts among those with reported steps.
    """
    arm, recorded = _main_arm(run, name)
    assert arm.drafter is not None
    return OracleSubject(
        f"{run.words}, arm {arm.name}",
        arm.name,
        join_answers(recorded.answers),
        draft_cost(cost, arm.name, str(arm.drafter.method)),
        arm.most_drafts,
        simulated=run.simulated,
        sampled=not run.plan.workload(run.workload).greedy,
        left_out=recorded.left_out,
    )


def _main_arm(run: RunLoad, requested: str | None) -> tuple[Arm, RecordedAnswers]:
    """Return the requested arm, or the arm with the longest drafts among those with reported steps."""
    drafting = {arm.name: arm for arm in _drafting_arms(run)}
    if requested is not None:
        arm = drafting[_one_of("--arm", requested, list(drafting), "drafts with")]
        return arm, _recorded_steps(run, arm)
    rejected = list[BadInput]()
    for arm in sorted(drafting.values(), key=lambda arm: arm.most_drafts, reverse=True):
        try:
            return arm, _recorded_steps(run, arm)
        except BadInput as error:  # n-gram has the longest drafts but often no steps, so the next arm is tried
            rejected.append(error)
    raise rejected[0]


def _drafting_arms(run: RunLoad) -> list[Arm]:
    """Return the arms whose drafter the plan declares. Raises BadInput where there is none."""
    drafting = [each for each in run.plan.arms if each.drafter is not None]
    if drafting:
        return drafting
    if run.plan.engine.is_external:
        # `specbench measure` sees an endpoint's accepted tokens, but not how many it drafted at most in a step.
        raise BadInput(
            f"{run.words}: the run measured an endpoint, so its plan declares no drafter and no draft length, which an"
            " oracle needs: measure the same drafter with `specbench run`, or give an engine's trace as FILE"
        )
    raise BadInput(f"{run.words}: the run has the baseline alone: add an arm with a drafter and measure it")


def _recorded_steps(run: RunLoad, arm: Arm) -> RecordedAnswers:
    found = recorded_answers(run.answers(arm.name))
    if not found.answers:
        remedies = "; ".join(_REMEDY[why] for why in found.left_out if why in _REMEDY)
        what = f"{run.words}, arm {arm.name}: no answer has all its steps recorded"
        raise BadInput(f"{what} ({_reasons(found.left_out)}): {remedies or _ERRORS_HINT}")
    return found
