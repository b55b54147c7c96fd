"""Kills at drawn moments: so many as were asked for, the same moments for the same seed, and an operator that lives."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from specbench_testing import operator_kills
from specbench_testing.operator_kills import OperatorKills, drawn_seed
from specbench_testing.operator_process import OperatorProcess, eventually

QUICK = (0.0, 0.01)


class Immortal:
    """As much of an operator as is killed."""

    def __init__(self, log: Path) -> None:
        self.log = log
        self.ended: int | None = None
        self.signals: list[signal.Signals] = []

    def end(self, how: signal.Signals) -> None:
        self.signals.append(how)
        self.ended = -how

    def launch(self) -> None:
        self.ended = None

    def healthy(self) -> bool:
        return self.ended is None


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operator_kills, "AWAY_S", QUICK)


def kills_of(immortal: Immortal, times: int, lives_s: tuple[float, float] = QUICK) -> OperatorKills:
    operator: OperatorProcess = immortal  # type: ignore[assignment]
    return OperatorKills(operator, times, "seed", lives_s)


def test_it_is_killed_so_often_and_lives_afterwards(tmp_path: Path) -> None:
    immortal = Immortal(tmp_path / "log")
    with kills_of(immortal, 3) as kills:
        eventually(lambda: kills.done)
    assert immortal.signals == [signal.SIGKILL] * 3
    assert len(kills.at) == 3
    assert immortal.healthy()


def test_what_is_over_is_killed_no_more(tmp_path: Path) -> None:
    immortal = Immortal(tmp_path / "log")
    with kills_of(immortal, 3, lives_s=(60, 60)) as kills:
        assert not kills.done
    assert immortal.signals == []


def test_an_operator_that_ended_by_itself_is_told(tmp_path: Path) -> None:
    immortal = Immortal(tmp_path / "log")
    immortal.log.write_text("what it said")
    immortal.ended = 1
    with pytest.raises(AssertionError, match="what it said"), kills_of(immortal, 3) as kills:
        eventually(lambda: kills.done)


def test_a_seed_that_is_given_is_taken_and_any_is_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SPECBENCH_CHAOS_SEED", "again")
    assert drawn_seed() == "again"
    assert capsys.readouterr().out == "SPECBENCH_CHAOS_SEED=again\n"
    monkeypatch.delenv("SPECBENCH_CHAOS_SEED")
    assert drawn_seed() != drawn_seed()
