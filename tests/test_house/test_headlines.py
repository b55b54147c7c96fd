"""Client and operator do not import each other; these tests check that they use the same names for figures."""

from __future__ import annotations

import pytest

from specbench_api.outcome.figure import LATENCIES, StatusFigure
from specbench_api.spec.slo import PERCENTILES, PERCENTS, Slo
from specbench_api.spec.status import Percentiles
from specbench_client.stored_runs.status_document import status_document
from specbench_testing.synthetic_records import SyntheticRun, run_of_world

pytestmark = pytest.mark.runs

SLO = Slo(ttft_ms=10_000)


def test_the_client_provides_every_figure_that_the_operator_reads() -> None:
    summary = run_of_world(SyntheticRun())
    expected = {str(name) for name in StatusFigure if name not in LATENCIES}
    expected |= {f"{name}_{which}" for name in LATENCIES for which in PERCENTILES}
    drafted = next(cell for cell in summary.cells if cell.arm != "none")
    assert expected - drafted.figures.keys() == set()


def test_status_has_a_field_for_every_percentile() -> None:
    assert tuple(Percentiles.model_fields) == PERCENTILES == tuple(f"p{percent}" for percent in PERCENTS)


@pytest.mark.parametrize(
    ("world", "column_of_the_other_loop"),
    [(SyntheticRun(slo=SLO), "rate"), (SyntheticRun(slo=SLO, rate=(2,)), "concurrency")],
)
def test_only_the_column_of_the_other_loop_type_is_empty_for_a_drafting_arm(
    world: SyntheticRun, column_of_the_other_loop: str
) -> None:
    row = next(row for row in status_document(run_of_world(world), world.plan).arms if row.arm != "none")
    assert [name for name, value in row if value is None or value == ""] == [column_of_the_other_loop]
