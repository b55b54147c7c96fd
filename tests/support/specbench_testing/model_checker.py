"""An explicit-state model checker: explores every state that a model can reach, breadth-first, without repetition.

A model is a set of states and of steps between them. Some steps are faults (a crash, a lost node, an outage). States
are explored in order of the number of faults that lead to them, then of the number of steps. So each state is visited
once, and a reported trace has the fewest faults, and of those the fewest steps.

Two kinds of properties are checked: invariants, of each state and each step; and that every path ends: from each state,
the model's fair continuation (everybody does what is due, no further faults) must lead to an end.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Generic, NamedTuple, Protocol, TypeVar

StateT = TypeVar("StateT", bound=Hashable)
FAIR_STEPS_MAX = 400
"""Maximum length of a fair continuation. A longer one does not end."""
NEVER_ENDS = "the path never ends"
NOTHING_LEFT = "nothing is left to do before the end"


class Step(NamedTuple, Generic[StateT]):
    """A step from a state to another. `broken`: the invariant that the step breaks, or empty."""

    action: str
    state: StateT
    broken: str = ""


class Model(Protocol[StateT]):
    """What the checker explores. The actions of the steps of one state are distinct."""

    def initial(self) -> StateT:
        """The state in which every path begins."""
        ...

    def steps(self, state: StateT) -> Iterable[Step[StateT]]:
        """All steps from this state that are no faults."""
        ...

    def faults(self, state: StateT) -> Iterable[Step[StateT]]:
        """All faults that may occur in this state."""
        ...

    def broken(self, state: StateT) -> str:
        """The invariant that this state breaks; empty if it breaks none."""
        ...

    def fair_step(self, state: StateT) -> Step[StateT] | None:
        """The next step of the fair continuation; None if nothing is left to do."""
        ...

    def has_ended(self, state: StateT) -> bool:
        """Whether a path may end in this state."""
        ...


@dataclass(frozen=True)
class Violation:
    """A broken property, and the actions from the initial state that lead to it."""

    message: str
    actions: tuple[str, ...]
    faults: int

    def as_test(self, model: str) -> str:
        """The source of a test that fails with this violation. `model`: the expression that creates the model."""
        lines = "".join(f"        {action!r},\n" for action in self.actions)
        return (
            f"def test_trace() -> None:\n    # {self.message}\n"
            f"    trace = (\n{lines}    )\n    assert replay({model}, trace) == ''\n"
        )


@dataclass(frozen=True)
class Exploration:
    """What was explored."""

    states: int
    transitions: int
    depth: int
    """Largest number of steps from the initial state."""
    faults: int
    """All states that are reachable with this many faults were explored; -1 if not even those without a fault."""
    seconds: float
    violation: Violation | None

    def summary(self) -> str:
        """The figures in one line."""
        return (
            f"{self.states:,} states, {self.transitions:,} steps, depth {self.depth}, complete for up to"
            f" {self.faults} faults, {self.seconds:.0f} s, {self.states / max(self.seconds, 1e-9):,.0f} states/s"
        )


class _Origin(NamedTuple, Generic[StateT]):
    """How a state is reached with the fewest faults, and then with the fewest steps."""

    faults: int
    depth: int
    parent: StateT | None = None
    action: str = ""


class _Explorer(Generic[StateT]):
    """The state of one exploration."""

    def __init__(self, model: Model[StateT]) -> None:
        self.model = model
        self.origins: dict[StateT, _Origin[StateT]] = {}
        self.queue: list[tuple[int, int, int, StateT]] = []
        """Faults, depth, order of discovery, and state."""
        self.ending: set[StateT] = set()
        """States whose fair continuation ends."""
        self.states = self.transitions = self.depth = 0
        self.incomplete: int | None = None
        """The smallest number of faults of a state that was left out; None if none was."""

    def trace(self, state: StateT) -> tuple[str, ...]:
        """The actions from the initial state to this one."""
        actions = []
        origin = self.origins[state]
        while origin.parent is not None:
            actions.append(origin.action)
            origin = self.origins[origin.parent]
        return tuple(reversed(actions))

    def explore(self, states_max: int, faults_max: int, until: float) -> Violation | None:
        """Explore until all is explored, a limit is reached, or a property is broken."""
        self._discover(self.model.initial(), _Origin(0, 0))
        while self.queue:
            faults, depth, _, state = heapq.heappop(self.queue)
            if self.origins[state][:2] != (faults, depth):
                continue  # it was reached with fewer faults or steps since, and was explored then
            if self.states >= states_max or time.perf_counter() >= until:
                self._leave_out(faults)
                return None
            self.states += 1
            self.depth = max(self.depth, depth)
            if violation := self._check(state, faults) or self._follow(state, self.model.steps(state), 0):
                return violation
            if faults == faults_max:
                continue
            if len(self.origins) >= states_max:
                self._leave_out(faults + 1)
            elif violation := self._follow(state, self.model.faults(state), 1):
                return violation
        return None

    def _leave_out(self, faults: int) -> None:
        self.incomplete = faults if self.incomplete is None else min(self.incomplete, faults)

    def _follow(self, state: StateT, steps: Iterable[Step[StateT]], cost: int) -> Violation | None:
        """Discover where these steps lead to."""
        faults, depth, *_ = self.origins[state]
        for step in steps:
            self.transitions += 1
            if step.broken:
                return Violation(step.broken, (*self.trace(state), step.action), faults)
            self._discover(step.state, _Origin(faults + cost, depth + 1, state, step.action))
        return None

    def _discover(self, state: StateT, origin: _Origin[StateT]) -> None:
        known = self.origins.get(state)
        if known is None or origin[:2] < known[:2]:
            self.origins[state] = origin
            heapq.heappush(self.queue, (origin.faults, origin.depth, self.transitions, state))

    def _check(self, state: StateT, faults: int) -> Violation | None:
        if broken := self.model.broken(state):
            return Violation(broken, self.trace(state), faults)
        path: dict[StateT, str] = {}
        current = state
        while current not in self.ending:
            step = self.model.fair_step(current)
            if step is None and self.model.has_ended(current):
                break
            if step is None or step.state in path or len(path) > FAIR_STEPS_MAX or step.broken:
                cause = step.broken if step else ""
                message = cause or (NOTHING_LEFT if step is None else NEVER_ENDS)
                rest = (*path.values(), *((step.action,) if step else ()))
                return Violation(message, (*self.trace(state), *rest), faults)
            path[current] = step.action
            current = step.state
        self.ending.update(path)
        self.ending.add(current)
        return None


def explore(
    model: Model[StateT], *, states_max: int, faults_max: int, seconds_max: float = float("inf")
) -> Exploration:
    """Explore a model until all states with up to `faults_max` faults were visited, or a limit is reached."""
    began = time.perf_counter()
    explorer = _Explorer(model)
    violation = explorer.explore(states_max, faults_max, began + seconds_max)
    seconds = time.perf_counter() - began
    complete = faults_max if explorer.incomplete is None else explorer.incomplete - 1
    return Exploration(explorer.states, explorer.transitions, explorer.depth, complete, seconds, violation)


def replay(model: Model[StateT], actions: Iterable[str]) -> str:
    """Follow a trace; returns the property that it breaks, or empty. Raises ValueError for an impossible action."""
    state = model.initial()
    passed = {state}
    for action in actions:
        fair = model.fair_step(state)
        steps = {step.action: step for step in (*model.faults(state), *model.steps(state), *((fair,) if fair else ()))}
        if action not in steps:
            raise ValueError(f"{action!r} is not possible here: {', '.join(sorted(steps))}")
        state = steps[action].state
        if broken := steps[action].broken or model.broken(state):
            return broken
        if state in passed:
            return NEVER_ENDS
        passed.add(state)
    return "" if model.fair_step(state) or model.has_ended(state) else NOTHING_LEFT
