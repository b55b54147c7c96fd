"""What is needed to start one engine with one drafter, for pods and local processes; and how it verifies drafts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Protocol

from specbench_api.errors import Problem
from specbench_api.spec.drafter import Drafter, DraftLength
from specbench_api.spec.engine import Engine, PromptCache
from specbench_api.spec.model import Target

LAUNCHES_MAX = 3
"""Maximum launches per engine group, not counting losses that the engine did not cause."""
CONFIG_FOLDER = "/etc/specbench/engine"
"""Folder of an engine's configuration files in a pod."""


@dataclass(frozen=True)
class LaunchRequest:
    """The engine to start; the same for every arm except for `drafter`.

    `slots`: requests to serve at once. `gpus`: GPUs over all nodes. `row`: index in `spec.drafters`. `nodes`: number of
    nodes of the engine. `gpu_resource`: the GPUs' name in Kubernetes. `claims`: whether a claim provides the GPUs.
    """

    engine: Engine
    target: Target
    drafter: Drafter | None
    slots: int
    gpus: int = 0
    row: int = 0
    nodes: int = 1
    gpu_resource: str = "nvidia.com/gpu"
    prompt_cache: PromptCache = PromptCache.DISABLED
    claims: bool = False

    @property
    def caches(self) -> bool:
        """Whether the engine may reuse the KV cache of earlier prompts."""
        return self.prompt_cache is PromptCache.AS_SERVED

    @property
    def drafter_path(self) -> str:
        """Path of the drafter in the spec."""
        return f"spec.drafters[{self.row}]"


@dataclass(frozen=True)
class LaunchSpec:
    """How to start the engine.

    `args` follow the program. In a pod the program is `command`, or else `image_program`, or else the image's entry
    point; on this machine it is `command`, or else the first of `local_programs` that exists. `port` is the port inside
    a pod; on this machine it is a free one. All engines have the flags `--host` and `--port`, and the page HEALTH_PATH.
    `files` and `hub` contain, by the path of the spec field, what the engine reads from its own disk and what it
    downloads from a model hub. For an engine on several nodes, `worker_args` follow the program on each node except the
    first; Kubernetes substitutes LEADER and RANK. `drafting` and `drafting_config` are the part of `args` and of the
    configuration file that makes the engine draft, without settings of the measurement: what a deployment of the arm
    needs.
    """

    image: str
    args: tuple[str, ...]
    port: int
    command: tuple[str, ...] | None = None
    image_program: tuple[str, ...] | None = None
    local_programs: tuple[tuple[str, ...], ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    served_model: str = ""
    configs: Mapping[str, str] = field(default_factory=dict)
    """Configuration files by name. They are placed in CONFIG_FOLDER, to which `args` refer."""
    files: Mapping[str, str] = field(default_factory=dict)
    hub: Mapping[str, str] = field(default_factory=dict)
    worker_args: tuple[str, ...] | None = None
    drafting: tuple[str, ...] = ()
    drafting_config: Mapping[str, Any] = field(default_factory=dict)


HEALTH_PATH = "/health"
"""The page of every engine that is answered with status 200 once it is ready."""
LEADER = "$(LWS_LEADER_ADDRESS)"
"""Address of a group's first node, for arguments: LeaderWorkerSet sets the variable and the kubelet substitutes it."""
RANK = "$(LWS_WORKER_INDEX)"
"""Index of the node in its group, for arguments; 0 is the first."""


def with_config_folder(launch: LaunchSpec, folder: str) -> LaunchSpec:
    """Return the launch with its configuration files in another folder."""
    moved = tuple(argument.replace(CONFIG_FOLDER, folder) for argument in launch.args)
    return replace(launch, args=moved)


def is_pinned(image: str) -> bool:
    """Return whether an image is named by its digest. A tag may name another image tomorrow."""
    return "@sha256:" in image


def release_tag(version: str) -> str:
    """Return the image tag of a release, with the prefix v (`v0.33.0`); other tags like `nightly` are unchanged."""
    return f"v{version}" if version[0].isdigit() else version


@dataclass(frozen=True)
class ContextRules:
    """How an engine limits the tokens of a request, by which prompts are checked before the measurement.

    `flags`: the flags that set its context length, the usual one first. `needs_answer_space`: whether it rejects a
    prompt that leaves no space for `maxTokens`; other engines begin, and truncate the answer. `divided_among_slots`:
    whether each concurrent request gets an equal share of the context, unless one of `sharing_flags` is set.
    """

    flags: tuple[str, ...]
    needs_answer_space: bool
    divided_among_slots: bool = False
    sharing_flags: tuple[str, ...] = ()


class Launcher(Protocol):
    """How one kind of engine is started, and how it limits the context of a request."""

    context: ContextRules

    def launch(self, order: LaunchRequest) -> LaunchSpec:
        """Return how to start the engine. Assumes that `problems` returned none."""
        ...

    def problems(self, order: LaunchRequest) -> Sequence[Problem]:
        """Return what this engine does not support, and arguments that contradict managed flags."""
        ...

    def verification(self, engine: Engine, drafter: Drafter) -> Verification:
        """Return how the engine draws and accepts this drafter's tokens above temperature 0."""
        ...


# Locations of models: on the engine's own disk, or on a hub.

MODEL_MOUNT = "/models"
"""Mount point of the volume of `spec.model.pvc` in a pod."""
DEFAULT_REVISION = "main"


def target_path(target: Target) -> str | None:
    """Return the target's path where the engine runs, or None if it is downloaded by name."""
    return f"{MODEL_MOUNT}/{target.pvc.path.lstrip('/')}" if target.pvc else target.path


def pinned_revision(target: Target) -> str | None:
    """Return the revision to request from the hub, or None if it is the hub's default or there is no download."""
    return target.revision if target_path(target) is None and target.revision != DEFAULT_REVISION else None


def is_path(model: str) -> bool:
    """Return whether a drafter's model is a path on the engine's disk; otherwise it is a name on the hub."""
    return model.startswith(("/", ".", "~"))


def model_sources(
    order: LaunchRequest, is_file: Callable[[str], bool] = is_path
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the models read from the engine's disk, and those downloaded from the hub, by spec field.

    `is_file`: whether the engine reads an adapter or a drafter's model of this name from its disk.
    """
    files, hub = dict[str, str](), dict[str, str]()
    target, drafter = order.target, order.drafter
    path = target_path(target)
    if path:
        files["spec.model.pvc" if target.pvc else "spec.model.path"] = path
    else:
        hub["spec.model.name"] = target.name
    if target.adapter:
        (files if is_file(target.adapter.model) else hub)["spec.model.adapter.model"] = target.adapter.model
    if drafter and drafter.model:
        (files if is_file(drafter.model) else hub)[f"{order.drafter_path}.model"] = drafter.model
    return files, hub


def uri_problems(target: Target, program: str) -> list[Problem]:
    """Return a problem if the target has a URI, for a program that cannot load models from one."""
    if not target.uri:
        return []
    remedy = "use spec.model.path or pvc, or only the name on the hub"
    return [Problem("spec.model.uri", f"{program} cannot load a model from a URI", remedy)]


def from_batch_size(lengths: Sequence[DraftLength]) -> list[tuple[int, DraftLength]]:
    """Return the rows in ascending order, each with the first batch size to which it applies."""
    rows = sorted(lengths, key=lambda row: row.batch_size)
    return list(zip([1, *(before.batch_size + 1 for before, _ in pairwise(rows))], rows, strict=False))


# How an engine draws draft tokens above temperature 0, and by which rule it accepts them.
#
# Each launcher derives both from its own command line and the engine's defaults. At temperature 0 nothing is drawn: a
# draft token is accepted if it is the target's most likely token, unless the verification is lossy there too.

GREEDY = "greedy"
"""The drafter's most likely token, or looked-up text."""
PROBABILISTIC = "probabilistic"
"""Drawn from the drafter's distribution p_draft."""
TOKEN_MATCH = "token match"  # noqa: S105 -- no secret
"""Accepted if the target draws the same token, which has the probability p_target(token)."""
REJECTION = "rejection sampling"
"""Accepted with probability min(1, p_target / p_draft); equal to `TOKEN_MATCH` for greedy drafts."""
BLOCK = "block verification"
"""Like `REJECTION`, but decided for all draft tokens of a step together."""
LOSSY = " (lossy)"
"""The end of a rule's name if accepted tokens do not have the target's distribution."""


@dataclass(frozen=True)
class DerivedMethod:
    """A method that follows from the command line: its name, and the option or the engine's default that sets it.

    `name` is None if it does not follow; `source` then states why.
    """

    name: str | None
    source: str


@dataclass(frozen=True)
class Verification:
    """How drafts are drawn and accepted. `lossy`: the options by which answers lose the target's distribution.

    `partial`: whether the target verifies only some of the drafts, although the engine counts all of them.
    """

    drafts: DerivedMethod
    acceptance: DerivedMethod
    lossy: tuple[str, ...] = ()
    partial: bool = False


def unknown_verification(why: str, lossy: tuple[str, ...] = ()) -> Verification:
    """Return a verification that does not follow from the command line."""
    return Verification(DerivedMethod(None, why), DerivedMethod(None, why), lossy)


def default_verification(drafts: str, acceptance: str, release: str) -> Verification:
    """Return the engine's defaults. `release`: the engine and the release in whose source they were read."""
    source = f"default of {release}"
    return Verification(DerivedMethod(drafts, source), DerivedMethod(acceptance, source))
