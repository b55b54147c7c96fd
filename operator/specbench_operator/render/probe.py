"""A look around in the engine's own image, with its GPUs, before it starts; only where the operator is told to.

An init container runs a few lines of shell and leaves what it saw in its termination message. Whatever it asks for may
be missing: it ends well all the same, and says so in words. The one thing it needs is a shell.
"""

from __future__ import annotations

from copy import deepcopy
from shlex import join

from specbench_api.outcome.nvidia import GPUS, SUMMARY, TOPOLOGY
from specbench_operator.render.child import Manifest

PROBE = "probe"
"""Name of the container."""
SECTION = "== "
"""Begins the line that names what follows."""
OF_GPUS, OF_CUDA, OF_LINKS, OF_TORCH = "gpus", "cuda", "links", "torch"
_TORCH = (
    "import importlib.util as u, os, runpy; "
    "v = runpy.run_path(os.path.join(os.path.dirname(u.find_spec('torch').origin), 'version.py')); "
    "print(v['__version__'], v.get('cuda'))"
)
"""Read from its file: importing torch takes longer than many an engine's start."""
_QUESTIONS = {
    OF_GPUS: f"{join(GPUS)} 2>&1 | head -c 900",
    OF_CUDA: f"{join(SUMMARY)} 2>&1 | head -n 5 | head -c 500",
    OF_LINKS: f"{join(TOPOLOGY)} 2>&1 | grep -e GPU -e smi | head -c 1600",
    OF_TORCH: f"{join(('python3', '-c', _TORCH))} 2>&1 | tail -n 1 | head -c 300",
}
"""Bounded, one by one: a termination message has 4096 bytes."""
SCRIPT = "\n".join(
    (
        "{",
        *(line for name, asked in _QUESTIONS.items() for line in (f"printf '\\n{SECTION}{name}\\n'", asked)),
        "} >/dev/termination-log 2>&1",
        "exit 0",
    )
)


def probe_container(engine: Manifest) -> Manifest:
    """The init container for an engine's container: its image, resources and security, and nothing of its work."""
    same = ("image", "imagePullPolicy", "resources", "securityContext")
    copied = deepcopy({key: engine[key] for key in same if key in engine})
    return {"name": PROBE, "command": ["/bin/sh", "-c", SCRIPT], **copied}


def sections(message: str) -> dict[str, str]:
    """What a probe said, by question."""
    found: dict[str, str] = {}
    for part in f"\n{message}".split(f"\n{SECTION}")[1:]:
        name, _, text = part.partition("\n")
        found[name.strip()] = text
    return found
