"""The work queue: no key is lost or processed twice at once, and errors back off."""

from __future__ import annotations

import pytest

from specbench_operator.handlers.work_queue import ROUTINE_TURN, Backoff, ResourceKey, WorkQueue

A, B = ResourceKey("SpecBenchRun", "default", "a"), ResourceKey("SpecBenchRun", "default", "b")


class Clock:
    """A clock that only the test advances."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def queue(clock: Clock) -> WorkQueue:
    return WorkQueue(clock, Backoff(first_s=1, cap_s=30))


async def test_a_key_added_three_times_is_processed_once(queue: WorkQueue) -> None:
    for _ in range(3):
        queue.add(A)
    assert queue.depth == 1
    assert await queue.get() == A
    assert queue.depth == 0


async def test_a_key_added_during_processing_is_queued_afterwards(
    queue: WorkQueue,
) -> None:
    queue.add(A)
    await queue.get()
    queue.add(A)
    queue.add(A)
    assert queue.depth == 0
    queue.done(A)
    assert queue.depth == 1
    await queue.get()
    queue.done(A)
    assert queue.depth == 0


async def test_a_requeued_key_is_returned_when_it_is_due(queue: WorkQueue, clock: Clock) -> None:
    queue.add(A)
    await queue.get()
    queue.done(A, requeue_after_s=10)
    queue.add(B)
    assert await queue.get() == B
    clock.now += 10
    assert await queue.get() == A


async def test_the_earliest_of_several_delays_counts(queue: WorkQueue, clock: Clock) -> None:
    queue.add_after(A, 100)
    queue.add_after(A, 10)
    queue.add_after(A, 50)
    clock.now += 10
    assert await queue.get() == A


async def test_a_delay_is_cancelled_when_the_key_is_processed_earlier(queue: WorkQueue, clock: Clock) -> None:
    queue.add_after(A, 10)
    queue.add(A)
    await queue.get()
    queue.done(A)
    clock.now += 100
    queue.add(B)
    assert await queue.get() == B
    assert queue.depth == 0


async def test_a_delay_that_ends_during_processing_is_kept(queue: WorkQueue, clock: Clock) -> None:
    queue.add(A)
    await queue.get()
    queue.add_after(A, 5)
    clock.now += 5
    queue.add(B)
    assert await queue.get() == B
    queue.done(A)
    assert await queue.get() == A


async def test_the_back_off_doubles_up_to_a_cap(queue: WorkQueue, clock: Clock) -> None:
    waits = []
    for _ in range(7):
        queue.add(A)
        clock.now += 100
        await queue.get()
        waits.append(queue.failed(A))
    assert waits == [1, 2, 4, 8, 16, 30, 30]


async def test_a_new_event_does_not_shorten_the_back_off(queue: WorkQueue, clock: Clock) -> None:
    queue.add(A)
    await queue.get()
    queue.add(A)
    queue.failed(A)
    queue.add(A)
    assert queue.depth == 0
    clock.now += 1
    assert await queue.get() == A


async def test_success_resets_the_back_off(queue: WorkQueue, clock: Clock) -> None:
    queue.add(A)
    await queue.get()
    queue.failed(A)
    clock.now += 1
    await queue.get()
    queue.done(A)
    queue.add(A)
    await queue.get()
    assert queue.failed(A) == 1


async def test_longest_s_is_the_age_of_the_oldest_work_in_progress(queue: WorkQueue, clock: Clock) -> None:
    queue.add(A)
    queue.add(B)
    await queue.get()
    clock.now += 7
    await queue.get()
    clock.now += 3
    assert queue.longest_s() == 10
    queue.done(A)
    assert queue.longest_s() == 3


async def test_an_event_moves_a_routine_key_forward_and_the_resync_does_not_move_it_back(queue: WorkQueue) -> None:
    queue.add(A, routine=True)
    queue.add(B, routine=True)
    queue.add(B)
    queue.add(B, routine=True)
    assert queue.depth == 2
    assert await queue.get() == B


async def test_an_event_during_a_routine_reconciliation_is_processed_as_an_event(queue: WorkQueue) -> None:
    queue.add(A, routine=True)
    await queue.get()
    queue.add(A)
    queue.add(A, routine=True)
    queue.add(B, routine=True)
    queue.done(A)
    assert await queue.get() == A
    assert not queue.is_routine(A)


async def test_polls_are_routine_and_what_happened_during_a_look_is_not(queue: WorkQueue, clock: Clock) -> None:
    for key, wait_s in ((A, 5.0), (B, 0.0)):
        queue.add(key)
        await queue.get()
        queue.done(key, requeue_after_s=wait_s)
    clock.now += 5
    assert [await queue.get(), await queue.get()] == [B, A]
    assert (queue.is_routine(A), queue.is_routine(B)) == (True, False)


async def test_a_delayed_event_stays_one_beside_a_poll(queue: WorkQueue, clock: Clock) -> None:
    queue.add_after(A, 1)
    queue.add_after(A, 5, routine=False)
    clock.now += 1
    await queue.get()
    assert not queue.is_routine(A)


async def test_what_an_event_has_queued_stays_so_after_errors(queue: WorkQueue, clock: Clock) -> None:
    for key, routine in ((A, True), (B, False)):
        queue.add(key, routine=routine)
        await queue.get()
        queue.failed(key)
    clock.now += 1
    assert [await queue.get(), await queue.get()] == [B, A]
    assert (queue.is_routine(A), queue.is_routine(B)) == (True, False)
    queue.failed(A)
    queue.add(A)
    clock.now += 2
    assert await queue.get() == A
    assert not queue.is_routine(A)


async def test_a_delayed_event_does_not_shorten_the_back_off(queue: WorkQueue, clock: Clock) -> None:
    for _ in range(3):
        queue.add(A)
        clock.now += 100
        await queue.get()
        queue.failed(A)
    queue.add_after(A, 0.5)
    clock.now += 1
    queue.add(B)
    assert await queue.get() == B
    assert queue.depth == 0
    clock.now += 3
    assert await queue.get() == A


async def test_a_namespace_with_many_events_leaves_every_other_turn_to_the_polls_of_another(queue: WorkQueue) -> None:
    for number in range(4):
        queue.add(A._replace(name=f"event-{number}"))
        queue.add(B._replace(namespace="other", name=f"polled-{number}"), routine=True)
    taken = [await queue.get() for _ in range(4)]
    assert [key.namespace for key in taken] == ["default", "other"] * 2


async def test_events_do_not_stop_the_resync(queue: WorkQueue) -> None:
    events = [A._replace(name=f"event-{number}") for number in range(2 * ROUTINE_TURN)]
    queue.add(A, routine=True)
    for key in events:
        queue.add(key)
    taken = [await queue.get() for _ in range(ROUTINE_TURN)]
    assert taken == [*events[: ROUTINE_TURN - 1], A]
