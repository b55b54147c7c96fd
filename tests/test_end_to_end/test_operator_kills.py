"""OperatorKills: the number of kills, equal times for equal seeds, and a running operator afterwards."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from specbench_testing import operator_kills
from specbench_testing.operator_kills import OperatorKills, drawn_seed
from specbench_testing.operator_process import OperatorProcess, eventually

QUICK = (0.0, 0.01)


class FakeOperator:
    """A minimal operator that can be killed and started."""

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


def kills_of(fake_operator: FakeOperator, times: int, lives_s: tuple[float, float] = QUICK) -> OperatorKills:
    operator: OperatorProcess = fake_operator  # type: ignore[assignment]
    return OperatorKills(operator, times, "seed", lives_s)


def test_the_operator_is_killed_as_often_as_requested_and_runs_afterwards(tmp_path: Path) -> None:
    fake_operator = FakeOperator(tmp_path / "log")
    with kills_of(fake_operator, 3) as kills:
        eventually(lambda: kills.done)
    assert fake_operator.signals == [signal.SIGKILL] * 3
    assert len(kills.at) == 3
    assert fake_operator.healthy()


def test_leaving_the_context_stops_the_kills(tmp_path: Path) -> None:
    fake_operator = FakeOperator(tmp_path / "log")
    with kills_of(fake_operator, 3, lives_s=(60, 60)) as kills:
        assert not kills.done
    assert fake_operator.signals == []


def test_an_operator_that_exits_by_itself_is_reported(tmp_path: Path) -> None:
    fake_operator = FakeOperator(tmp_path / "log")
    fake_operator.log.write_text("what it said")
    fake_operator.ended = 1
    with pytest.raises(AssertionError, match="what it said"), kills_of(fake_operator, 3) as kills:
        eventually(lambda: kills.done)


def test_a_given_seed_is_used_and_printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("SPECBENCH_CHAOS_SEED", "again")
    assert drawn_seed() == "again"
    assert capsys.readouterr().out == "SPECBENCH_CHAOS_SEED=again\n"
    monkeypatch.delenv("SPECBENCH_CHAOS_SEED")
    assert drawn_seed() != drawn_seed()
