"""Prompts become conversations in a fixed order, with their own names and seeds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from specbench_api.spec.workload import ThinkTime
from specbench_client.load.conversations import conversation_at, request_seed, think_time_ns
from specbench_testing.conversation_turns import row

ROWS = [row("a", category="x"), row("b", "1", "2"), row("c")]


def test_prompts_are_repeated_with_new_conversation_names() -> None:
    made = [conversation_at(ROWS, number) for number in range(7)]
    assert [one.id for one in made] == ["a#0", "b#0", "c#0", "a#1", "b#1", "c#1", "a#2"]
    assert [one.index for one in made] == list(range(7))
    assert made[0].prompt is ROWS[0]


@given(st.integers(0, 2**31 - 1), st.integers(0, 31), st.text(), st.integers(0, 9))
def test_request_seed_is_in_range_and_deterministic(seed: int, repeat: int, name: str, turn: int) -> None:
    drawn = request_seed(seed, repeat, name, turn)
    assert 0 <= drawn < 2**31
    assert drawn == request_seed(seed, repeat, name, turn)


def test_seeds_differ_by_seed_repeat_conversation_and_turn() -> None:
    variants = [(0, 0, "a#0", 0), (1, 0, "a#0", 0), (0, 1, "a#0", 0), (0, 0, "a#1", 0), (0, 0, "a#0", 1)]
    assert len({request_seed(*variant) for variant in variants}) == len(variants)


def test_think_times_have_the_declared_mean_and_are_the_same_on_every_arm() -> None:
    constant = ThinkTime.model_validate({"seconds": 1.5, "distribution": "Constant"})
    assert {think_time_ns(constant, 0, 0, f"c#{number}", 1) for number in range(9)} == {1_500_000_000}
    think_time = ThinkTime(seconds=2)
    drawn = [think_time_ns(think_time, 0, 0, f"c#{number}", 1) / 1e9 for number in range(20_000)]
    assert drawn == [think_time_ns(think_time, 0, 0, f"c#{number}", 1) / 1e9 for number in range(20_000)]
    mean = sum(drawn) / len(drawn)
    cv = (sum(each**2 for each in drawn) / len(drawn) - mean**2) ** 0.5 / mean
    assert abs(mean - 2) < 0.06, "four standard errors"
    assert abs(cv - 1) < 0.04
    assert min(drawn) >= 0
