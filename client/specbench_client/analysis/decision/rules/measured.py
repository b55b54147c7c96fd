"""Rules that a run can measure."""

from __future__ import annotations

import math
from collections.abc import Callable

from specbench_api.outcome.facts import FactName
from specbench_api.spec.drafter import Drafter, Method
from specbench_client.analysis.decision.rules.rule import (
    FASTER,
    FREE_LUNCH,
    ILLUSION,
    LARGER,
    NO_GAIN,
    PRODUCTION,
    SLOWER,
    SPEED_BENCH,
    Range,
    Rule,
    Subject,
)

_BIG_TREE = 21
_PRACTICAL = 16
"""The smallest batch above 1 that the source measured."""


def _accepted(low: float, high: float, least: int = 1) -> Callable[[Subject], str | None]:
    """Accepted share from `low` up to but not with `high`, of at least so many drafts a step."""

    def condition(subject: Subject) -> str | None:
        rate, drafts = subject.acceptance, subject.drafter.num_speculative_tokens
        if rate is None or not low <= rate < high or drafts < least:
            return None
        return f"{rate:.0%} of the drafts accepted" + (f", {drafts} a step" if least > 1 else "")

    return condition


def _streams(low: int, high: float) -> Callable[[Subject], str | None]:
    def condition(subject: Subject) -> str | None:
        streams = subject.concurrency
        return f"concurrency {streams}" if streams is not None and low <= streams <= high else None

    return condition


def _hot(subject: Subject) -> str | None:
    return f"temperature {subject.temperature:g}" if subject.temperature > 1 else None


def _big_tree(subject: Subject) -> str | None:
    nodes, streams = subject.drafter.num_draft_tokens, subject.concurrency
    if nodes is None or streams is None or nodes < _BIG_TREE or streams < 64:
        return None
    return f"{nodes} nodes at concurrency {streams}"


def _size(subject: Subject) -> str | None:
    target, draft = subject.number(FactName.WEIGHTS_BYTES), subject.number(FactName.DRAFTER_WEIGHTS_BYTES)
    if subject.drafter.method is not Method.DRAFT_MODEL or not target or not draft:
        return None
    return f"1/{target / draft:.0f} of the target's weights" if 10 <= target / draft <= 50 else None


def _length(first: Subject, second: Subject) -> str | None:
    mine, its = first.drafter, second.drafter
    if not _same_drafter(mine, its) or _is_tree(mine) or _is_tree(its):
        return None
    lengths = mine.num_speculative_tokens, its.num_speculative_tokens
    return f"{lengths[0]} against {lengths[1]} drafts" if 5 <= lengths[0] <= 7 and not 5 <= lengths[1] <= 7 else None


def _chain(first: Subject, second: Subject) -> str | None:
    mine, its, streams = first.drafter, second.drafter, first.concurrency
    if not _same_drafter(mine, its) or _is_tree(mine) or not _is_tree(its) or (streams or 0) < _PRACTICAL:
        return None
    return f"chain against tree at concurrency {streams}"


def _all_round(first: Subject, second: Subject) -> str | None:
    if first.drafter.method is not Method.EAGLE3 or second.drafter.method is Method.EAGLE3:
        return None
    return f"eagle3 against {second.drafter.method}"


def _same_drafter(one: Drafter, other: Drafter) -> bool:
    return (one.method, one.model, one.algorithm) == (other.method, other.model, other.algorithm)


def _is_tree(drafter: Drafter) -> bool:
    return (drafter.eagle_topk or 1) > 1 or drafter.num_draft_tokens is not None


MEASURED = (
    Rule(
        "acceptance-under-55",
        "Below 55 % of the drafts accepted, do not enable it",
        FREE_LUNCH,
        NO_GAIN,
        _accepted(0, 0.55),
    ),
    Rule(
        "acceptance-55-to-60",
        "Between 55 and 60 % it breaks even",
        FREE_LUNCH,
        Range(0.95, 1.05, "within 5 % of the baseline"),
        _accepted(0.55, 0.60),
    ),
    Rule("acceptance-over-65", "Above 65 % it gains", FREE_LUNCH, FASTER, _accepted(0.65, math.inf)),
    Rule(
        "acceptance-60-with-5-drafts",
        "From 60 % with five drafts or more, two to three times as fast (its own formula gives 2.4 tokens a step)",
        FREE_LUNCH,
        Range(2.0, 3.0, "2x to 3x"),
        _accepted(0.60, math.inf, least=5),
    ),
    Rule("temperature-over-1", "Above temperature 1, disable it", PRODUCTION, NO_GAIN, _hot),
    Rule("concurrency-32", "From concurrency 32 no gain", PRODUCTION, NO_GAIN, _streams(32, 63)),
    Rule("concurrency-64", "From concurrency 64 a loss", PRODUCTION, SLOWER, _streams(64, math.inf)),
    Rule(
        "concurrency-1-to-10",
        "Up to concurrency 10 two to three times as fast",
        FREE_LUNCH,
        Range(2.0, 3.0, "2x to 3x"),
        _streams(1, 10),
    ),
    Rule(
        "concurrency-10-to-30",
        "From concurrency 10 to 30, 1.3 to 1.8 times as fast",
        FREE_LUNCH,
        Range(1.3, 1.8, "1.3x to 1.8x"),
        _streams(11, 30),
    ),
    Rule(
        "big-tree-at-64",
        "A tree of 21 nodes is slower than the baseline by batch 64",
        ILLUSION,
        SLOWER,
        _big_tree,
    ),
    Rule(
        "draft-model-size",
        "A draft model has a tenth to a fiftieth of the target's size",
        FREE_LUNCH,
        FASTER,
        _size,
    ),
    Rule("draft-length-5-to-7", "Five to seven drafts are best, more are wasted", PRODUCTION, LARGER, pairs=_length),
    Rule("chain-over-tree", "Chains beat trees at practical batches", ILLUSION, LARGER, pairs=_chain),
    Rule("eagle3-all-round", "EAGLE-3 is the best all-round drafter", SPEED_BENCH, LARGER, pairs=_all_round),
)
