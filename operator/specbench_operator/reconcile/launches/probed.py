"""What the probe saw in the engine's image, in facts."""

from __future__ import annotations

import re

from specbench_api.outcome.facts import FactName
from specbench_api.outcome.launched import Fact
from specbench_api.outcome.nvidia import cuda_fact, gpu_facts, links_fact
from specbench_operator.render.probe import OF_CUDA, OF_GPUS, OF_LINKS, OF_TORCH, sections
from specbench_operator.state.pods import Pod

SOURCE = "the probe in the engine's image"
_TORCH = re.compile(r"(\S+) (None|[\d.]+)\s*")
_QUOTED = 200


def probed(pod: Pod) -> dict[FactName, Fact]:
    """Empty where no probe ran: then nothing is said of it."""
    if pod.probe is None:
        return {}
    told = sections(pod.probe.message)
    return {
        **gpu_facts(told.get(OF_GPUS, ""), SOURCE),
        FactName.DRIVER_CUDA: cuda_fact(told.get(OF_CUDA, ""), SOURCE),
        FactName.INTERCONNECT: links_fact(told.get(OF_LINKS, ""), SOURCE),
        **_torch(told.get(OF_TORCH, "")),
    }


def _torch(text: str) -> dict[FactName, Fact]:
    found = _TORCH.fullmatch(text)
    if found is None:
        said = " ".join(text.split())[:_QUOTED] or "it said nothing"
        return dict.fromkeys((FactName.TORCH, FactName.CUDA), Fact.unseen(f"{SOURCE} tells none: {said}"))
    cuda = "none" if found[2] == "None" else found[2]
    return {FactName.TORCH: Fact.seen(found[1], SOURCE), FactName.CUDA: Fact.seen(cuda, SOURCE)}
