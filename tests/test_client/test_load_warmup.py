"""Warm-up: when step times count as steady."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specbench_client.chat import ChatMessage
from specbench_client.documents.record import Record
from specbench_client.load.warmup import (
    WarmupBounds,
    WarmupMonitor,
    step_ms,
    warmup_prompts,
)
from specbench_client.workload.row_parsing import Prompt
from specbench_testing.conversation_turns import blank_record

MS = 1_000_000


def answer(took_ms: float, last_ns: int = 10**9, steps: int = 10) -> Record:
    first_ns = last_ns - int(took_ms * steps * MS)
    return replace(blank_record(), first_token_ns=first_ns, last_token_ns=last_ns, steps=steps, output_tokens=30)


def requests_until_steady(bounds: WarmupBounds, step: Callable[[int], float]) -> int | None:
    """Return the number of warm-up requests, or None if the steps were never steady."""
    seen = WarmupMonitor(bounds)
    for number in range(bounds.most):
        seen.add(answer(step(number), last_ns=(number + 1) * 10**10))
        if seen.reached:
            return seen.requests
    return None


def test_warm_up_ends_when_steps_have_settled() -> None:
    settling = [20 * (1 + 2 * 0.8**number) for number in range(64)]
    took = requests_until_steady(WarmupBounds.of(8, 4), lambda number: settling[number])
    assert took is not None
    assert took > 8
    assert settling[took - 4] < 20 * 1.1


def test_steady_steps_end_the_warm_up_at_the_minimum() -> None:
    assert requests_until_steady(WarmupBounds.of(8, 4), lambda _: 20.0) == 8
    assert requests_until_steady(WarmupBounds.of(30, 4), lambda _: 20.0) == 30


def test_steps_that_keep_falling_are_never_steady() -> None:
    assert requests_until_steady(WarmupBounds.of(8, 4), lambda number: 100 * 0.97**number) is None


def test_noise_around_a_constant_step_time_is_steady() -> None:
    noise = random.Random(1)
    took = [requests_until_steady(WarmupBounds.of(16, 8), lambda _: noise.gauss(20, 1)) for _ in range(50)]
    assert None not in took


def test_prompts_of_others_that_are_computed_between_steps_are_not_a_trend() -> None:
    """Others' prompts delay three steps of ten, then two, one, none: the mean falls, not the median."""
    seen = WarmupMonitor(WarmupBounds.of(4, 4))
    for number in range(16):
        gaps = [20 + 60 * (place < 3 - number // 4) for place in range(10)]
        ends = [number * 10**10 + sum(gaps[:place]) * MS for place in range(11)]
        seen.add(replace(blank_record(), chunk_ns=ends, first_token_ns=ends[0], last_token_ns=ends[-1], steps=10))
        if seen.reached:
            break
    assert seen.requests == 8


@pytest.mark.parametrize("gap_ns", [0, 20_000])
@pytest.mark.parametrize("known", [True, False])
def test_several_chunks_of_one_step_are_not_steps(gap_ns: int, known: bool) -> None:
    """An engine that sends one chunk for each token: its steps of three tokens are judged, not the gaps within them."""

    def warm_up(cold: float) -> tuple[bool, int]:
        seen = WarmupMonitor(WarmupBounds.of(8, 4))
        while not seen.reached and seen.requests < 32:
            step_ns, start = int(20 * MS * (1 + cold * 0.9**seen.requests)), seen.requests * 10**10
            times = [start + step * step_ns + token * gap_ns for step in range(40) for token in range(3)]
            steps = 39 if known else None
            seen.add(replace(answer(20), chunk_ns=times, first_token_ns=start, last_token_ns=times[-1], steps=steps))
        return seen.reached, seen.requests

    assert warm_up(0.0) == (True, 8)
    assert warm_up(3.0)[1] > 16


@pytest.mark.parametrize(
    ("least", "concurrency", "expected"),
    [(4, 1, (4, 16, 4)), (4, 8, (8, 32, 8)), (4, 128, (128, 512, 128)), (1, 1, (1, 4, 2)), (200, 64, (200, 800, 64))],
)
def test_window_equals_the_concurrency_within_the_maximum(
    least: int, concurrency: int, expected: tuple[int, int, int]
) -> None:
    assert WarmupBounds.of(least, concurrency) == WarmupBounds(*expected)


@given(st.integers(1, 10_000), st.integers(1, 4096))
def test_two_windows_always_fit_into_the_maximum(least: int, concurrency: int) -> None:
    bounds = WarmupBounds.of(least, concurrency)
    assert 1 <= bounds.window <= bounds.most // 2


def test_answers_are_ordered_by_their_end_not_by_arrival_of_records() -> None:
    bounds = WarmupBounds(least=1, most=100, window=2)
    steps = [80.0, 81.0, 20.0, 20.5]
    records = [answer(step, last_ns=(number + 1) * 10**10) for number, step in enumerate(steps)]
    assert not any(reached(bounds, order) for order in (records, reversed(records)))
    assert reached(bounds, [answer(20.0, last_ns=place * 10**10) for place in (5, 6)] + records)


def reached(bounds: WarmupBounds, records: Iterable[Record]) -> bool:
    seen = WarmupMonitor(bounds)
    for record in records:
        seen.add(record)
    return seen.reached


def test_failed_requests_are_counted_but_have_no_step_time() -> None:
    seen = WarmupMonitor(WarmupBounds(1, 8, 1))
    for _ in range(5):
        seen.add(replace(answer(20), error_class="timeout"))
    assert (seen.requests, seen.reached) == (5, False)


def test_step_time_is_per_engine_step_or_per_token_without_steps() -> None:
    numbers = count()
    assert step_ms(answer(20, steps=10)) == 20
    assert step_ms(replace(answer(20, steps=10), steps=None, output_tokens=11)) == 20
    whole = replace(answer(0), first_token_ns=None, sent_ns=10**9 - 300 * MS, steps=None)
    assert step_ms(whole) == 10  # not streamed: 300 ms over 30 tokens
    for missing in ({"last_token_ns": None}, {"steps": None, "output_tokens": 1}, {"error_class": "reset"}):
        assert step_ms(replace(answer(20, last_ns=10**9 + next(numbers)), **missing)) is None


def test_prompts_that_a_warm_up_sends_again_share_no_beginning() -> None:
    prompts = [Prompt(f"p{number}", None, ((ChatMessage("user", f"{number} b a"),),)) for number in range(2)]
    sent = warmup_prompts(prompts, 5)
    assert len({prompt.id for prompt in sent}) == 5
    assert [prompt.turns[0][0].content for prompt in sent] == ["a b 0", "a b 1", "2 a b 0", "3 a b 1", "4 a b 0"]
