"""The init container `probe` of an engine's pod, which records GPUs, links, driver and PyTorch.

It is added if the chart's value probeEngines is true. It is no startup or readiness probe: those are in `engine_pod`.

It runs a shell script and writes the output to its termination message. Commands that are missing in the image are
reported in that output, and the container succeeds anyway. It only needs a shell.
"""

from __future__ import annotations

from copy import deepcopy
from shlex import join

from specbench_api.outcome.nvidia_smi import GPUS, SUMMARY, TOPOLOGY
from specbench_operator.render.shared_fields import Manifest

PROBE_CONTAINER = "probe"
"""Name of the init container."""
SECTION = "== "
"""Prefix of a line that names the section after it."""
OF_GPUS, OF_CUDA, OF_LINKS, OF_TORCH = "gpus", "cuda", "links", "torch"
_TORCH = (
    "import importlib.util as u, os, runpy; "
    "v = runpy.run_path(os.path.join(os.path.dirname(u.find_spec('torch').origin), 'version.py')); "
    "print(v['__version__'], v.get('cuda'))"
)
"""PyTorch's version, read from its version file, because importing torch takes longer than starting many an engine."""
_PROBE_COMMANDS = {
    OF_GPUS: f"{join(GPUS)} 2>&1 | head -c 900",
    OF_CUDA: f"{join(SUMMARY)} 2>&1 | head -n 5 | head -c 500",
    OF_LINKS: f"{join(TOPOLOGY)} 2>&1 | grep -e GPU -e smi | head -c 1600",
    OF_TORCH: f"{join(('python3', '-c', _TORCH))} 2>&1 | tail -n 1 | head -c 300",
}
"""Section → command. The output of each is limited, because a termination message has at most 4096 bytes."""
PROBE_SCRIPT = "\n".join(
    (
        "{",
        *(line for name, command in _PROBE_COMMANDS.items() for line in (f"printf '\\n{SECTION}{name}\\n'", command)),
        "} >/dev/termination-log 2>&1",
        "exit 0",
    )
)


def probe_container(engine: Manifest) -> Manifest:
    """The init container for an engine's container, with the same image, resources and security context."""
    same = ("image", "imagePullPolicy", "resources", "securityContext")
    copied = deepcopy({key: engine[key] for key in same if key in engine})
    return {"name": PROBE_CONTAINER, "command": ["/bin/sh", "-c", PROBE_SCRIPT], **copied}


def parse_probe_message(message: str) -> dict[str, str]:
    """Section → output, from a probe's termination message."""
    found: dict[str, str] = {}
    for part in f"\n{message}".split(f"\n{SECTION}")[1:]:
        name, _, text = part.partition("\n")
        found[name.strip()] = text
    return found
