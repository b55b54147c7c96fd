"""What courses take by a step-cost model: each request as a batch of copies of itself, as the published runs were.

Prefill: one pass over the prompts. Then one pass a step. B copies have B times the tokens in cache and batch.
"""

from __future__ import annotations

import numpy as np

from specbench_api.outcome.cost_model import CostModel
from specbench_client.analysis.oracle.answers import Answers
from specbench_client.analysis.oracle.course import Course
from specbench_client.metrics.frame import Values


def plain_seconds(answers: Answers, cost: CostModel, batch: int) -> Values:
    """Seconds of each answer without a drafter: its prefill, and one step for each token after the first."""
    prompt, steps = answers.prompt_tokens.astype(np.float64), answers.output_tokens - 1.0
    cached = batch * (steps * prompt + steps * (steps + 1) / 2)
    each = cost.target.fixed_s + cost.target.per_token_s * batch + cost.overhead_s
    return _prefill(answers, cost, batch) + steps * each + cost.target.per_cached_token_s * cached


def course_seconds(answers: Answers, course: Course, cost: CostModel, batch: int) -> Values:
    """Seconds of each answer on a course."""
    cached = (batch * course.steps.cached).astype(np.float64)
    drafts = course.drafts.astype(np.float64)
    target = _target(cost, cached, batch * (drafts + 1))
    step = target + cost.overhead_s
    for bill in course.bills:
        own = bill.cost
        drafting = own.fixed_s + own.per_draft_s * drafts + own.per_cached_token_s * cached
        step = step + np.where(bill.pays, drafting + own.share_of_target * target, 0.0)
    return _prefill(answers, cost, batch) + course.steps.sums(answers, step)


def _prefill(answers: Answers, cost: CostModel, batch: int) -> Values:
    prompts = batch * answers.prompt_tokens.astype(np.float64)
    return _target(cost, np.zeros_like(prompts), prompts) + cost.overhead_s


def _target(cost: CostModel, cached: Values, tokens: Values) -> Values:
    target = cost.target
    return target.fixed_s + target.per_token_s * tokens + target.per_cached_token_s * cached
