"""The condition Validated warns of an engine image that is named by a tag."""

from __future__ import annotations

from typing import Any

import pytest

from specbench_api.launch.launcher import is_pinned
from specbench_api.spec.conditions import ConditionType
from specbench_testing.cluster_world import launched
from specbench_testing.operator_builders import operator_run

DIGEST = "sha256:" + "0" * 64


@pytest.mark.parametrize(
    ("engine", "moving"),
    [
        ({"kind": "vllm", "version": "0.33.0"}, "vllm/vllm-openai:v0.33.0"),
        ({"kind": "vllm", "image": "registry.example.com/vllm:dev"}, "registry.example.com/vllm:dev"),
        ({"kind": "vllm", "image": f"registry.example.com/vllm@{DIGEST}"}, None),
        ({"kind": "vllm", "image": f"registry.example.com/vllm:dev@{DIGEST}"}, None),
    ],
)
def test_an_image_that_may_move_is_named_with_the_remedy(engine: dict[str, Any], moving: str | None) -> None:
    world = launched(operator_run({"spec.engine": engine}))
    assert world.status_and_reason(ConditionType.VALIDATED) == ("True", "Valid")
    message = world.condition(ConditionType.VALIDATED).message
    assert (message == "") == (moving is None)
    if moving:
        assert f"the tag of {moving} may name another image later" in message
        assert "set spec.engine.image to NAME@sha256:…" in message
    assert world.status.problem == ""


def test_only_a_digest_pins_an_image() -> None:
    assert is_pinned(f"a@{DIGEST}")
    assert not is_pinned("a:1.0")
    assert not is_pinned("a")
