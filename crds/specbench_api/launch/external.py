"""An endpoint that already runs: nothing is launched, so nothing is known of it but what it answers.

`specbench measure` drives one. A SpecBenchRun compares engines that it launches itself, alike but for the drafter; of
two endpoints nobody knows in what else they differ.
"""

from __future__ import annotations

from collections.abc import Sequence

from specbench_api.errors import Problem
from specbench_api.launch.launch import Launch, Order
from specbench_api.spec.engine import EngineKind


class ExternalLauncher:
    """Nothing to start; refused where something would have to be."""

    kind = EngineKind.EXTERNAL

    def launch(self, order: Order) -> Launch:
        """No image, no argument; the model has the name that the user gave."""
        return Launch(image="", args=(), port=0, served_model=order.target.name)

    def problems(self, order: Order) -> Sequence[Problem]:
        """What to do instead."""
        remedy = f"specbench measure --endpoint {order.engine.endpoint} --model {order.target.name}"
        return [Problem("spec.engine.kind", "external: a SpecBenchRun launches its engines itself", remedy)]
