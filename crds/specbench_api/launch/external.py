"""An external endpoint: nothing is launched, so only its responses are known.

`specbench measure` drives one. A SpecBenchRun compares engines that it launches itself, which differ only in their
drafter; two external endpoints could differ in anything.
"""

from __future__ import annotations

from collections.abc import Sequence

from specbench_api.errors import Problem
from specbench_api.launch.launcher import LaunchRequest, LaunchSpec
from specbench_api.spec.engine import EngineKind


class ExternalLauncher:
    """Rejects an external endpoint in a SpecBenchRun, which has to launch its engines."""

    kind = EngineKind.EXTERNAL

    def launch(self, order: LaunchRequest) -> LaunchSpec:
        """Return a launch without image and arguments, with the model name that the user gave."""
        return LaunchSpec(image="", args=(), port=0, served_model=order.target.name)

    def problems(self, order: LaunchRequest) -> Sequence[Problem]:
        """Return the problem, with the command to use instead."""
        remedy = f"specbench measure --endpoint {order.engine.endpoint} --model {order.target.name}"
        message = "external is not supported in a SpecBenchRun, which launches its engines itself"
        return [Problem("spec.engine.kind", message, f"run {remedy}")]
