"""The work queue and the looks at stores: no key is lost or processed twice at once, and errors back off."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import pytest

from specbench_operator.errors import Retry
from specbench_operator.handlers.store_looks import (
    BACKOFF,
    BUSY,
    KEPT_S,
    NAMESPACE_MAX,
    THREADS_MAX,
    UNPROVEN_MAX,
    WAIT_MAX_S,
    StoreKey,
    StoreLooks,
)
from specbench_operator.handlers.work_queue import ROUTINE_TURN, Backoff, ResourceKey, WorkQueue
from specbench_operator.state.run import RunObservation, StoredResults, StoreFailure
from specbench_testing.cluster_world import AWAY, NO_BUCKET
from specbench_testing.operator_builders import Clock

A, B = ResourceKey("SpecBenchRun", "default", "a"), ResourceKey("SpecBenchRun", "default", "b")


@pytest.fixture
def clock() -> Clock:
    return Clock(1000.0)


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


# Looks at stores: their own threads, fairness between namespaces, back-off, and what happens to waiting runs.

GOOD = RunObservation({}, stored=StoredResults())


def key_of(name: str, namespace: str = "a") -> ResourceKey:
    return ResourceKey("SpecBenchRun", namespace, name)


@dataclass
class LooksHarness:
    """Looks whose threads the test runs, with the test's clock."""

    now: float = 0.0
    threads: dict[str, Callable[[], None]] = field(default_factory=dict)
    """The looks that take place, by the name of their run."""
    answered: list[str] = field(default_factory=list)
    routine: set[str] = field(default_factory=set)
    """The runs that no event has queued."""
    ages: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.looks = StoreLooks(
            lambda key, _routine: self.answered.append(key.name),
            lambda: self.now,
            spawn=self._spawn,
            is_routine=lambda key: key.name in self.routine,
        )

    def _spawn(self, function: Callable[[], None], name: str) -> None:
        self.threads[name.removeprefix("store of ")] = function

    def start(
        self,
        name: str,
        namespace: str = "a",
        *,
        store: str = "s3",
        answer: RunObservation | Exception = GOOD,
    ) -> None:
        def observe(age_s: float) -> RunObservation:
            self.ages.append(age_s)
            if isinstance(answer, Exception):
                raise answer
            return answer

        self.looks.start(key_of(name, namespace), StoreKey(namespace, store), observe)

    def end(self, names: Iterable[str]) -> None:
        for name in list(names):
            self.threads.pop(name)()

    def prove(self, *stores: tuple[str, str]) -> None:
        """Let these stores, each a namespace and a name, answer once."""
        for namespace, store in stores:
            self.start("proof", namespace, store=store)
            self.end(["proof"])
            self.looks.take(key_of("proof", namespace))


@pytest.fixture
def harness() -> LooksHarness:
    return LooksHarness()


def test_an_answer_is_taken_once(harness: LooksHarness) -> None:
    key = key_of("run")
    harness.start("run")
    assert harness.looks.take(key).in_progress
    harness.end(["run"])
    assert harness.answered == ["run"]
    answer = harness.looks.take(key)
    assert (answer.observed, answer.again) == (GOOD, True), "something happened while the look was in progress"
    assert harness.looks.take(key).observed is None


def test_an_outdated_answer_is_not_used(harness: LooksHarness) -> None:
    harness.start("run")
    harness.end(["run"])
    harness.now += KEPT_S
    answer = harness.looks.take(key_of("run"))
    assert (answer.observed, answer.in_progress) == (None, False)


def test_an_error_of_the_api_server_is_raised_to_the_worker(harness: LooksHarness) -> None:
    harness.start("run", answer=Retry("ApiUnreachable", "the Secret cannot be read"))
    harness.end(["run"])
    with pytest.raises(Retry):
        harness.looks.take(key_of("run"))
    assert harness.looks.take(key_of("run")).observed is None
    assert harness.looks.failure(key_of("run"), StoreKey("a", "s3")) is None


def test_a_failed_look_is_repeated_after_a_growing_wait(harness: LooksHarness) -> None:
    key, store, waits = key_of("run"), StoreKey("a", "s3"), []
    for _ in range(5):
        harness.start("run", answer=RunObservation({}, stored=AWAY))
        harness.end(["run"])
        harness.looks.take(key)
        began = harness.now
        while harness.looks.failure(key, store) is not None:
            assert harness.looks.failure(key, store) == AWAY
            assert harness.looks.failure(key, StoreKey("a", "corrected")) is None, "another store is read at once"
            harness.now += 5
        waits.append(harness.now - began)
    assert waits == [BACKOFF.after(number) for number in range(1, 6)] == [15, 30, 60, 60, 60]
    harness.start("run")
    harness.end(["run"])
    harness.start("other", answer=RunObservation({}, stored=AWAY))
    harness.end(["other"])
    assert harness.looks.failure(key, store) is None, "a success ends the back-off, and it belongs to one run"


def test_a_run_that_is_gone_is_forgotten(harness: LooksHarness) -> None:
    harness.start("run", answer=RunObservation({}, gate=AWAY))
    harness.end(["run"])
    assert harness.looks.failure(key_of("run"), StoreKey("a", "s3")) == AWAY
    harness.looks.forget(key_of("run"))
    assert harness.looks.failure(key_of("run"), StoreKey("a", "s3")) is None


def test_hostile_stores_leave_threads_for_the_honest_store_of_their_namespace(harness: LooksHarness) -> None:
    harness.prove(("a", "honest"))
    for number in range(10):
        harness.start(f"hostile-{number}", store=f"hostile-{number}")
    harness.start("honest", store="honest")
    assert "honest" in harness.threads
    assert len(harness.threads) == UNPROVEN_MAX + 1


def test_a_store_that_becomes_slow_has_to_answer_again_but_not_one_that_refuses(harness: LooksHarness) -> None:
    for failure, expected in ((AWAY, UNPROVEN_MAX), (NO_BUCKET, NAMESPACE_MAX)):
        harness.prove(("a", "s3"))
        harness.start("run", answer=RunObservation({}, stored=failure))
        harness.end(["run"])
        harness.looks.take(key_of("run"))
        names = [f"{failure.reason}-{number}" for number in range(NAMESPACE_MAX)]
        for name in names:
            harness.start(name)
        assert len(harness.threads) == expected
        while harness.threads:
            harness.end(harness.threads)
        for name in names:
            harness.looks.take(key_of(name))


def test_no_namespace_waits_for_the_queue_of_another(harness: LooksHarness) -> None:
    harness.prove(*((f"n{number}", "s3") for number in range(10)))
    for number in range(10):
        for each in range(10):
            harness.start(f"n{number}-{each}", f"n{number}", store="s3")
    assert len(harness.threads) == THREADS_MAX
    harness.start("late", "late")
    harness.end(list(harness.threads))
    assert "late" in harness.threads
    counts = [sum(name.startswith(f"n{number}-") for name in harness.threads) for number in range(10)]
    assert max(counts) <= NAMESPACE_MAX
    for _ in range(20):
        harness.end(list(harness.threads))
    assert len(harness.answered) == 10 + 100 + 1
    assert harness.looks.waiting == 0


def test_a_run_that_waits_too_long_is_decided_with_a_failure(harness: LooksHarness) -> None:
    for number in range(UNPROVEN_MAX):
        harness.start(f"hostile-{number}", store=f"hostile-{number}")
    harness.start("run", store="new")
    key = key_of("run")
    assert harness.looks.take(key).in_progress
    assert harness.looks.waiting == 1
    harness.now += WAIT_MAX_S
    assert not harness.looks.take(key).in_progress
    assert harness.looks.failure(key, StoreKey("a", "new")) == BUSY
    assert harness.looks.waiting == 0
    harness.end(list(harness.threads))
    assert harness.threads == {}


@pytest.mark.parametrize("event_meanwhile", [False, True])
def test_a_run_with_an_event_goes_before_polled_runs(harness: LooksHarness, *, event_meanwhile: bool) -> None:
    harness.prove(("a", "s3"))
    polled = [f"polled-{number}" for number in range(NAMESPACE_MAX + 2)]
    harness.routine = {*polled, "last"}
    for name in (*polled, "last"):
        harness.start(name)
    if event_meanwhile:
        harness.routine.remove("last")
        harness.looks.take(key_of("last"))
    else:
        harness.start("edited")
    harness.end(polled[:1])
    assert ("last" if event_meanwhile else "edited") in harness.threads


def test_every_eighth_look_is_the_oldest_so_that_events_do_not_stop_the_polls(harness: LooksHarness) -> None:
    harness.prove(("a", "s3"))
    harness.routine = {"polled"}
    for number in range(NAMESPACE_MAX):
        harness.start(f"first-{number}")
    for name in ("polled", *(f"edited-{number}" for number in range(ROUTINE_TURN))):
        harness.start(name)
    for _ in range(ROUTINE_TURN):
        harness.end(list(harness.threads)[:1])
    assert "edited-0" not in harness.threads
    assert "polled" in [*harness.threads, *harness.answered]


def test_a_poll_during_a_look_does_not_repeat_it(harness: LooksHarness) -> None:
    harness.routine = {"run"}
    harness.start("run")
    harness.looks.take(key_of("run"))
    harness.end(["run"])
    assert not harness.looks.take(key_of("run")).again


def test_a_new_run_goes_before_those_whose_stores_have_failed(harness: LooksHarness) -> None:
    slow = RunObservation({}, stored=StoreFailure("S3Slow", "slow", refused=False))
    names = [f"hostile-{number}" for number in range(10)]
    for attempt in range(2):
        for name in names:
            harness.start(name, store=name, answer=slow)
        if attempt == 0:
            for _ in range(len(names)):
                harness.end(list(harness.threads))
            for name in names:
                harness.looks.take(key_of(name))
    harness.now += WAIT_MAX_S
    assert not harness.looks.take(key_of(names[-1])).in_progress, "waiting for others is no failure of its store"
    harness.start(names[-1], store=names[-1], answer=slow)
    harness.start("honest", store="new")
    harness.end(list(harness.threads))
    assert "honest" in harness.threads


_ENDS = """
import threading
from specbench_operator.handlers.store_looks import THREADS_MAX, StoreKey, StoreLooks
from specbench_operator.handlers.work_queue import ROUTINE_TURN, ResourceKey
started = threading.Semaphore(0)
def hang(_age):
    started.release()
    threading.Event().wait()
looks = StoreLooks(print)
for number in range(THREADS_MAX):
    looks.start(ResourceKey("SpecBenchRun", f"n{number}", "run"), StoreKey(f"n{number}", "s3"), hang)
for _ in range(THREADS_MAX):
    started.acquire()
"""


@pytest.mark.process
def test_the_process_ends_while_all_looks_hang() -> None:
    done = subprocess.run([sys.executable, "-c", _ENDS], timeout=60, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_look_learns_how_long_its_observation_has_waited(harness: LooksHarness) -> None:
    for number in range(UNPROVEN_MAX):
        harness.start(f"first-{number}")
    harness.start("second")
    harness.now += 7
    harness.end(list(harness.threads))
    harness.end(["second"])
    assert harness.ages == [7.0] * UNPROVEN_MAX + [7.0]
