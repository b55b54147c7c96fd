"""Parsing the output of nvidia-smi into facts."""

from __future__ import annotations

import pytest

from specbench_api.outcome.provenance import Fact, FactName, cuda_fact, gpu_facts, links_fact
from specbench_testing.nvidia_smi import HEAD, MIXED, PAIR, SINGLE


def test_identical_gpus_are_counted() -> None:
    facts = gpu_facts("NVIDIA H200, 143771, 570.133.20\n" * 2, "here")
    assert facts == {
        FactName.GPU: Fact.observed("NVIDIA H200", "here"),
        FactName.GPU_COUNT: Fact.observed(2, "here"),
        FactName.GPU_MEMORY_BYTES: Fact.observed(143771 << 20, "here"),
        FactName.DRIVER: Fact.observed("570.133.20", "here"),
    }


@pytest.mark.parametrize("rows", ["A, 80, 5\nB, 40, 5\n", "A and B, [N/A], 5"])
def test_different_gpus_are_all_listed_and_their_memory_is_unknown(rows: str) -> None:
    facts = gpu_facts(rows, "here")
    assert facts[FactName.GPU].value == "A and B"
    assert facts[FactName.GPU_MEMORY_BYTES].value is None


@pytest.mark.parametrize(
    ("rows", "reason"),
    [("", "its output is empty"), ("sh: 1: nvidia-smi:\n not found", "sh: 1: nvidia-smi: not found")],
)
def test_unparsable_output_is_quoted_in_the_reason(rows: str, reason: str) -> None:
    facts = gpu_facts(rows, "here")
    assert facts == dict.fromkeys(facts, Fact.unknown(f"here reports none: {reason}"))
    assert FactName.GPU in facts


@pytest.mark.parametrize(("matrix", "expected"), [(PAIR, "NV18"), (MIXED, "NV4, SYS"), (SINGLE, "none"), ("", None)])
def test_links_fact_lists_only_links_between_gpus(matrix: str, expected: str | None) -> None:
    assert links_fact(matrix, "here").value == expected


@pytest.mark.parametrize(("head", "expected"), [(HEAD, "12.8"), ("no devices", None)])
def test_the_drivers_cuda_version_is_read_from_the_header(head: str, expected: str | None) -> None:
    assert cuda_fact(head, "here").value == expected
