"""The requests in flight over a time, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from specbench_client.metrics.concurrent_requests import InFlight

NAN = float("nan")


@pytest.mark.parametrize(
    ("first", "last", "amounts", "span", "expected"),
    [
        ([0, 10], [20, 30], [1, 1], (0, 30), 40 / 30),
        ([0, 10], [20, 30], [1, 1], (12, 18), 2),
        ([100, 110], [120, 130], [1, 1], (110, 125), 25 / 15),
        ([0, 10], [20, 30], [5, 3], (5, 15), (50 + 15) / 10),
        ([0, NAN, 0, 0], [20, 20, NAN, 20], [1, 1, 1, NAN], (0, 10), 1),
        ([-1000], [1000], [1], (0, 10), 1),
        ([NAN], [20], [1], (0, 10), 0),
        ([0], [20], [1], (10, 10), NAN),
    ],
    ids=["whole", "both inside", "later origin", "amounts", "unknown left out", "all the time", "none", "no time"],
)
def test_mean_in_flight_over_a_time(
    first: list[float], last: list[float], amounts: list[float], span: tuple[float, float], expected: float
) -> None:
    in_flight = InFlight.of(*(np.array(each, dtype=np.float64) for each in (first, last, amounts)))
    found = in_flight.mean(*(np.array([each], dtype=np.float64) for each in span))
    assert found == pytest.approx([expected], nan_ok=True)
