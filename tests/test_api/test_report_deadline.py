"""The deadline of report and gate Jobs: the field, or a default that grows with the planned number of requests."""

from __future__ import annotations

from typing import Any

import pytest

from specbench_api.plan.estimate import CONVERSATIONS_ASSUMED, REPORT_MIN_S, report_deadline_s
from specbench_api.spec.run import REPORT_DEADLINE_MAX_S
from specbench_testing.resources import run_of

CLOSED = {"concurrency": [1, 8], "repeats": 3}
OPEN = {"rate": [2, 4], "slots": 4, "repeats": 3}


@pytest.mark.parametrize(
    ("load", "requests"),
    [
        ({**CLOSED, "requests": 1_000_000}, 2 * 3 * 2 * 1_000_000),
        ({**CLOSED, "durationSeconds": 2_000}, 3 * 2 * (1 + 8) * 2_000),
        (CLOSED, 2 * 3 * 2 * CONVERSATIONS_ASSUMED),
        ({**OPEN, "requests": 5_000}, 2 * 3 * 2 * 5_000),
        ({**OPEN, "durationSeconds": 1_000}, 3 * 2 * (2 + 4) * 1_000),
        (
            {"slots": 4, "arrival": {"process": "Trace", "uri": "trace.jsonl"}, "repeats": 3},
            3 * 2 * CONVERSATIONS_ASSUMED,
        ),
    ],
    ids=str,
)
def test_the_default_is_an_hour_and_a_second_for_every_thousand_requests(load: dict[str, Any], requests: int) -> None:
    """The run has two arms and one workload, whose number of prompts is not in the spec."""
    assert report_deadline_s(run_of({"spec.load": load}).spec) == REPORT_MIN_S + requests // 1000


def test_the_number_of_prompts_counts_if_the_spec_has_it() -> None:
    spec = run_of({"spec.load": CLOSED, "spec.workloads[0].dataset.count": 5_000}).spec
    assert report_deadline_s(spec) == REPORT_MIN_S + 2 * 3 * 2 * 5


def test_the_field_replaces_the_default() -> None:
    assert report_deadline_s(run_of({"spec.reportDeadlineSeconds": 61}).spec) == 61


def test_the_default_is_within_the_limit_of_the_field() -> None:
    largest = {"concurrency": [4096], "durationSeconds": 86_400, "repeats": 32}
    assert report_deadline_s(run_of({"spec.load": largest}).spec) == REPORT_DEADLINE_MAX_S
