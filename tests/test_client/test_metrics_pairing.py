"""A pair has the same prompt, turn, pass and repeat on both sides."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from specbench_api.spec.engine import EngineKind
from specbench_api.spec.load import ArmOrder
from specbench_client.documents.record import Record
from specbench_client.metrics import pairing
from specbench_client.metrics.pairing import Pairs, pair_requests, pass_numbers
from specbench_client.metrics.rows import Table
from specbench_client.metrics.tidy_frame import numbers
from specbench_testing.synthetic_records import SyntheticRun, frame_of, record, sha, tidy_frames


def rows_of(*records: Record) -> Table:
    return tidy_frames([frame_of(list(records))], "point")


def turn(number: int, reply: str | None, talk: str = "c", **changes: Any) -> Record:
    text = sha(reply) if reply is not None else None
    return record(turn=number, output_sha256=text, conversation_id=talk, intended_ns=number * 1000, **changes)


def keys(pairs: Pairs) -> list[tuple[int, str, int]]:
    """Repeat, prompt and turn of each pair, which are the same on both sides."""
    arm, baseline = (
        list(zip(numbers(rows, "repeat"), rows.codes("prompt_id").by_row, numbers(rows, "turn"), strict=True))
        for rows in (pairs.arm, pairs.baseline)
    )
    assert arm == baseline
    return arm


def test_pairs_stay_within_their_repeat() -> None:
    arm = rows_of(record(repeat=0), record(repeat=1))
    baseline = rows_of(record(repeat=1), record(repeat=2))
    assert keys(pair_requests(arm, baseline, None)) == [(1, "p", 0)]


def test_repeated_prompts_are_paired_by_pass() -> None:
    again = [record(conversation_id=f"c{lap}", intended_ns=lap * 10**9) for lap in range(3)]
    arm, baseline = rows_of(*again), rows_of(*again[:2])
    pairs = pair_requests(arm, baseline, None)
    assert [numbers(rows, "intended_ns").tolist() for rows in (pairs.arm, pairs.baseline)] == [[0.0, 1e9]] * 2
    assert pass_numbers(arm).tolist() == [0, 1, 2]


def test_failed_or_draining_requests_of_one_side_are_left_out_on_both() -> None:
    arm = rows_of(record(prompt_id="a"), record(prompt_id="b", error_class="reset"), record(prompt_id="c"))
    baseline = rows_of(record(prompt_id="a"), record(prompt_id="b"), record(prompt_id="c", phase="drain"))
    assert keys(pair_requests(arm, baseline, None)) == [(0, "a", 0)]
    assert pair_requests(arm, baseline, None).candidates == 2


def test_later_turns_are_paired_only_after_identical_replies() -> None:
    arm = rows_of(turn(0, "same"), turn(1, "other"), turn(2, "same"))
    baseline = rows_of(turn(0, "same"), turn(1, "this"), turn(2, "same"))
    found = pair_requests(arm, baseline, None)
    assert keys(found) == [(0, "p", 0), (0, "p", 1)]
    assert found.unpaired_later == 1


def test_unknown_reply_leaves_later_turns_unpaired() -> None:
    arm, baseline = rows_of(turn(0, None), turn(1, "x")), rows_of(turn(0, None), turn(1, "x"))
    assert keys(pair_requests(arm, baseline, None)) == [(0, "p", 0)]
    assert pair_requests(arm, baseline, None).unpaired_later == 1


def test_history_includes_replies_from_the_ramp() -> None:
    arm = rows_of(turn(0, "a", phase="ramp"), turn(1, "b"))
    assert keys(pair_requests(arm, arm, None)) == [(0, "p", 1)]


def test_both_sides_have_their_own_times() -> None:
    found = pair_requests(rows_of(record()), rows_of(record(last_token_ns=10**9)), None)
    assert numbers(found.arm, "last_token_ns").tolist() == [150e6]
    assert numbers(found.baseline, "last_token_ns").tolist() == [1e9]


def test_the_category_of_a_pair_is_that_of_the_baseline() -> None:
    mine, its = (
        rows_of(*(record(prompt_id=name, category=category) for name, category in zip("abc", categories, strict=True)))
        for categories in (("chat", "chat", "code"), ("chat", "code", "code"))
    )
    code = pair_requests(mine, its, None).of_category("code")
    assert [name for _, name, _ in keys(code)] == ["b", "c"]
    assert (code.candidates, code.unpaired_later) == (2, 0)


@pytest.mark.parametrize("stop", [None, "WhenDecided"])
@pytest.mark.parametrize("kind", [EngineKind.EXTERNAL, EngineKind.VLLM])
@pytest.mark.parametrize("order", [ArmOrder.INTERLEAVED, ArmOrder.SOAK])
def test_pairs_know_the_order_of_the_arms_and_whether_the_run_stops_early(
    order: ArmOrder, kind: EngineKind, stop: Literal["WhenDecided"] | None
) -> None:
    plan = SyntheticRun().plan
    engine, load = plan.engine.model_copy(update={"kind": kind}), plan.load.model_copy(update={"order": order})
    plan = plan.model_copy(update={"engine": engine, "load": load, "stop": stop})
    pairs = pair_requests(rows_of(record()), rows_of(record()), plan)
    assert pairs.alternating == (kind is EngineKind.EXTERNAL and order is ArmOrder.INTERLEAVED)
    assert pairs.anytime == (stop is not None)


def test_sides_without_common_prompts_have_no_pairs() -> None:
    found = pair_requests(rows_of(record(prompt_id="a")), rows_of(record(prompt_id="b")), None)
    assert len(found) == 0
    assert found.candidates == 1
    assert len(pair_requests(rows_of(), rows_of(record()), None)) == 0


def test_pieces_have_the_columns_of_their_own_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairing, "NUMBERS_TOGETHER", 2)
    arm, baseline = (
        rows_of(*(record(prompt_id=f"p{number}", output_tokens=first + number) for number in numbers_of))
        for first, numbers_of in ((10, range(5)), (20, reversed(range(5))))
    )
    pieces = list(pair_requests(arm, baseline, None).pieces())
    assert [numbers(piece.arm, "output_tokens").tolist() for piece in pieces] == [[10, 11], [12, 13], [14]]
    assert [numbers(piece.baseline, "output_tokens").tolist() for piece in pieces] == [[20, 21], [22, 23], [24]]
