"""Names of children derive from the run's name and are valid in Kubernetes."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from specbench_api.outcome import layout
from specbench_api.plan.limits import GROUPS_MAX
from specbench_api.plan.names import client_name, engine_name, plan_name, report_name
from specbench_api.spec.run import NAME_MAX

DNS_LABEL = re.compile(r"[a-z]([a-z0-9-]*[a-z0-9])?")
ATTEMPTS_MAX = 99
HASHES = st.text("0123456789abcdef", min_size=64, max_size=64)


@given(
    run=st.from_regex(r"[a-z]([a-z0-9-]{0,38}[a-z0-9])?", fullmatch=True),
    group=st.integers(0, GROUPS_MAX - 1),
    attempt=st.integers(0, ATTEMPTS_MAX),
)
def test_every_child_of_every_run_has_a_valid_kubernetes_name(run: str, group: int, attempt: int) -> None:
    """Kubernetes limits Service names, label values and pod host names to 63 characters."""
    assert len(run) <= NAME_MAX
    for name in (
        engine_name(run, group, attempt),
        client_name(run, group, attempt),
        report_name(run),
        plan_name(run, attempt),
    ):
        assert len(name) <= 63
        assert DNS_LABEL.fullmatch(name)


def test_names_contain_run_group_and_attempt() -> None:
    assert engine_name("demo", 2, 1) == "demo-g2-1"
    assert client_name("demo", 2, 1) == "demo-g2-1-client"
    assert (report_name("demo"), plan_name("demo"), plan_name("demo", 2)) == ("demo-report", "demo-plan", "demo-plan-2")


@given(HASHES)
def test_the_key_of_a_manifest_identifies_its_point(point: str) -> None:
    assert layout.hash_of_manifest(layout.manifest_key(point)) == point
    others = (
        layout.summary_key(point),
        layout.records_key(point, "0-1"),
        layout.PLAN,
        f"x/{layout.manifest_key(point)}",
    )
    assert [layout.hash_of_manifest(key) for key in others] == [None] * 4


def test_result_keys_are_as_documented() -> None:
    assert layout.run_root("team", "demo", "u-1") == "runs/team/demo/u-1"
    assert layout.records_key("ab", "2-0") == "points/ab/records/0-2-0.parquet"
