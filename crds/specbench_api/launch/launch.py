"""What it takes to start one engine with one drafter, said once for pods and processes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from specbench_api.errors import Problem
from specbench_api.spec.drafter import Drafter
from specbench_api.spec.engine import Engine, EngineKind
from specbench_api.spec.target import Target

CONFIG_FOLDER = "/etc/specbench/engine"


@dataclass(frozen=True)
class Order:
    """What is to be started: the same for every arm but for `drafter`. `slots`: requests served at once.

    `row`: the drafter's place in `spec.drafters`. `nodes`: over how many the engine spreads.
    """

    engine: Engine
    target: Target
    drafter: Drafter | None
    slots: int
    gpus: int = 0
    row: int = 0
    nodes: int = 1

    @property
    def drafter_path(self) -> str:
        """Where in the spec the drafter stands."""
        return f"spec.drafters[{self.row}]"


@dataclass(frozen=True)
class Launch:
    """How to start it.

    `args` follow the program. In a pod the program is `command`, or else `image_program`, or else the image's entry
    point; on this machine it is `command`, or else the first of `local_programs` that exists. `port` is where it
    listens inside a pod; on this machine `port_flag` is given a free one. `files` and `hub` hold, by the field of the
    spec that names it, what the engine reads from its own disk, and what it fetches from a model hub. Of an engine on
    several nodes, `worker_args` follow the program on each node but the first; Kubernetes puts LEADER and RANK in.
    """

    image: str
    args: tuple[str, ...]
    port: int
    command: tuple[str, ...] | None = None
    image_program: tuple[str, ...] | None = None
    local_programs: tuple[tuple[str, ...], ...] = ()
    host_flag: str = "--host"
    port_flag: str = "--port"
    env: Mapping[str, str] = field(default_factory=dict)
    health_path: str = "/health"
    served_model: str = ""
    configs: Mapping[str, str] = field(default_factory=dict)
    """Files that it reads at its start, by name. They lie in CONFIG_FOLDER, which `args` name."""
    files: Mapping[str, str] = field(default_factory=dict)
    hub: Mapping[str, str] = field(default_factory=dict)
    worker_args: tuple[str, ...] | None = None


LEADER = "$(LWS_LEADER_ADDRESS)"
"""Address of the first node of a group, in an argument: LeaderWorkerSet sets the variable, the kubelet puts it in."""
RANK = "$(LWS_WORKER_INDEX)"
"""Which node of the group this is; 0 is the first."""


def placed(launch: Launch, folder: str) -> Launch:
    """With its configuration files in another folder than a pod's."""
    moved = tuple(argument.replace(CONFIG_FOLDER, folder) for argument in launch.args)
    return replace(launch, args=moved)


def release_tag(version: str) -> str:
    """A release as images are tagged whose tags begin with v (`v0.33.0`); other tags, like `nightly`, as they are."""
    return f"v{version}" if version[0].isdigit() else version


class Launcher(Protocol):
    """One engine's way of being started."""

    kind: EngineKind

    def launch(self, order: Order) -> Launch:
        """Render. Pure; presumes that `problems` is empty."""
        ...

    def problems(self, order: Order) -> Sequence[Problem]:
        """What in the order this engine cannot do, or what contradicts a flag that we manage."""
        ...
