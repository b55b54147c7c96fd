"""What nvidia-smi says, read into facts."""

from __future__ import annotations

import pytest

from specbench_api.outcome.facts import FactName
from specbench_api.outcome.launched import Fact
from specbench_api.outcome.nvidia import cuda_fact, gpu_facts, links_fact
from specbench_testing.nvidia import HEAD, MIXED, PAIR, SINGLE


def test_gpus_of_one_kind_are_counted() -> None:
    facts = gpu_facts("NVIDIA H200, 143771, 570.133.20\n" * 2, "here")
    assert facts == {
        FactName.GPU: Fact.seen("NVIDIA H200", "here"),
        FactName.GPU_COUNT: Fact.seen(2, "here"),
        FactName.GPU_MEMORY_BYTES: Fact.seen(143771 << 20, "here"),
        FactName.DRIVER: Fact.seen("570.133.20", "here"),
    }


@pytest.mark.parametrize("rows", ["A, 80, 5\nB, 40, 5\n", "A and B, [N/A], 5"])
def test_gpus_of_two_kinds_are_both_named_and_have_no_one_memory(rows: str) -> None:
    facts = gpu_facts(rows, "here")
    assert facts[FactName.GPU].value == "A and B"
    assert facts[FactName.GPU_MEMORY_BYTES].value is None


@pytest.mark.parametrize(
    ("rows", "said"), [("", "it said nothing"), ("sh: 1: nvidia-smi:\n not found", "sh: 1: nvidia-smi: not found")]
)
def test_what_is_no_list_of_gpus_is_the_reason(rows: str, said: str) -> None:
    facts = gpu_facts(rows, "here")
    assert facts == dict.fromkeys(facts, Fact.unseen(f"here tells none: {said}"))
    assert FactName.GPU in facts


@pytest.mark.parametrize(("matrix", "wanted"), [(PAIR, "NV18"), (MIXED, "NV4, SYS"), (SINGLE, "none"), ("", None)])
def test_links_between_gpus_are_read_and_those_to_others_left_out(matrix: str, wanted: str | None) -> None:
    assert links_fact(matrix, "here").value == wanted


@pytest.mark.parametrize(("head", "wanted"), [(HEAD, "12.8"), ("no devices", None)])
def test_the_drivers_cuda_stands_in_the_head_of_the_table(head: str, wanted: str | None) -> None:
    assert cuda_fact(head, "here").value == wanted
