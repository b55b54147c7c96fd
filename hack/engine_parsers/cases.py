"""What is checked: every method in the support table, as the launcher renders it for a pod, and `decide --emit`."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from typing import Any

import yaml

from engine_parsers.environments import HACK
from engine_parsers.models import DRAFTERS, FURTHER_HEADS, MODELS, TARGETS
from specbench_api.launch.launcher import CONFIG_FOLDER, LEADER, RANK, LaunchRequest, with_config_folder
from specbench_api.launch.registry import LAUNCHERS, launch_problems
from specbench_api.launch.supported_methods import DEFAULT_RELEASES, support_of
from specbench_api.spec.drafter import Drafter, Method
from specbench_api.spec.engine import Engine, EngineKind
from specbench_api.spec.model import Adapter, Target

ALGORITHMS = {
    EngineKind.VLLM: ({"algorithm": "ngram_gpu"}, {"algorithm": "custom_class", "model": "my_module.MyProposer"}),
    EngineKind.SGLANG: ({"algorithm": "UNO"},),
}
"""The drafter for method custom, by engine."""
FURTHER: dict[EngineKind, tuple[tuple[str, dict[str, Any]], ...]] = {
    EngineKind.VLLM: (
        ("ngram, its lengths", {"method": "ngram", "promptLookupMin": 2, "promptLookupMax": 4}),
        ("ngram, by batch size", {"method": "ngram", "draftLengths": [{"batchSize": 4, "tokens": 3}]}),
        ("eagle3, split as the target", {"method": "eagle3", "draftTensorParallelSize": 2}),
        ("eagle3, not split", {"method": "eagle3", "draftTensorParallelSize": 1}),
        ("draft_model, a revision", {"method": "draft_model", "revision": "main"}),
        (
            "draft_model, further keys",
            {"method": "draft_model", "speculativeConfig": {"draft-sample-method": "greedy"}},
        ),
        ("eagle3, block verification", {"method": "eagle3", "speculativeConfig": {"rejection_sample_method": "block"}}),
        ("eagle3, in parallel", {"method": "eagle3", "speculativeConfig": {"parallel_drafting": True}}),
        (
            "draft_model, vocabularies",
            {"method": "draft_model", "speculativeConfig": {"use_heterogeneous_vocab": True}},
        ),
        ("dflash, XPress", {"method": "dflash", "model": "xpress-head", "speculativeConfig": {"xpress_topc": 256}}),
        ("dflash, DFlash2", {"method": "dflash", "model": "dflash2-head"}),
        ("dflash, LiLiCorr", {"method": "dflash", "model": "lilicorr-head"}),
    ),
    EngineKind.SGLANG: (
        ("eagle3, a tree", {"method": "eagle3", "eagleTopk": 4, "numDraftTokens": 8}),
        ("eagle3, block verification", {"method": "eagle3", "args": ["--speculative-use-block-verification"]}),
        ("dflash, Domino", {"method": "dflash", "args": ["--speculative-domino-candidate-pool-size=0"]}),
        ("dspark, adaptive", {"method": "dspark", "args": ["--speculative-dspark-sps-table-path=/table.json"]}),
    ),
}
"""Additional settings to check, besides every method with its defaults."""
ADAPTER = Adapter(name="sql", model="acme/sql", rank=20)
ADAPTED = ("ngram", "eagle3", "mtp")
"""Methods that are also checked with an adapter."""
NODES = 2
"""Number of nodes of a multi-node engine."""
NEWER_RUNNER = {"VLLM_USE_V2_MODEL_RUNNER": "1"}
"""Values that vLLM would choose itself on a GPU."""


@dataclass(frozen=True)
class Case:
    """One command line; `env` is set while it is checked."""

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)


def cases_of(kind: EngineKind, models: Path) -> list[Case]:
    """Return the baseline with and without equalized arms, every method, and their settings. `models`: their folder."""
    plain = [
        (str(knobs.get("algorithm") or method), {"method": str(method), **knobs}) for method, knobs in _cells(kind)
    ]
    equalized = Engine.model_validate({"kind": str(kind), "tensorParallelSize": 2})
    bare = equalized.model_copy(update={"equalize_arms": "Disabled"})
    return [
        Case("none", _argv(equalized, None, models)),
        Case("none, not equalized", _argv(bare, None, models)),
        *(
            Case(f"none, node {rank} of {NODES}", _argv(equalized, None, models, nodes=NODES, rank=rank))
            for rank in range(NODES)
        ),
        *(_case(name, equalized, knobs, models) for name, knobs in (*plain, *FURTHER[kind])),
        Case("none, an adapter", _argv(equalized, None, models, adapter=ADAPTER)),
        *(_case(f"{method}, an adapter", equalized, {"method": method}, models, ADAPTER) for method in ADAPTED),
        _emitted_case(kind, models),
    ]


# What `specbench decide --emit` prints, from its golden file of each engine.

EMITTED = HACK.parent / "tests" / "test_client" / "golden"
_HEAD = "acme/eagle3-head"


def _emitted_case(kind: EngineKind, models: Path) -> Case:
    text = (EMITTED / f"emit-{kind}.txt").read_text()
    target = LAUNCHERS[kind].launch(
        LaunchRequest(Engine(kind=kind), Target(name="acme/tiny", path=str(models / "llama")), None, slots=4)
    )
    here = {_HEAD: str(models / DRAFTERS[Method.EAGLE3]), CONFIG_FOLDER: str(_configs_folder(models))}
    for file, content in re.findall(r"^# Content of (\S+), for the path below: (.+)$", text, re.MULTILINE):
        (_configs_folder(models) / file).write_text(content)
    flags = shlex.split(yaml.safe_load(text))
    own = (reduce(lambda flag, old: flag.replace(old, here[old]), here, each) for each in flags)
    return Case("emitted", (*target.args, *own))


def _configs_folder(models: Path) -> Path:
    folder = models / "configs"
    folder.mkdir(exist_ok=True)
    return folder


def _cells(kind: EngineKind) -> list[tuple[Method, dict[str, str]]]:
    drafting = [method for method in Method if method is not Method.NONE]
    has = [method for method in drafting if support_of(kind, method, DEFAULT_RELEASES.get(kind)).supported]
    return [(method, knobs) for method in has for knobs in (ALGORITHMS[kind] if method is Method.CUSTOM else ({},))]


def _case(name: str, engine: Engine, knobs: dict[str, Any], models: Path, adapter: Adapter | None = None) -> Case:
    own = knobs.get("model", DRAFTERS.get(Method(knobs["method"])))
    model = {"model": str(models / own) if own in MODELS else own} if own else {}
    drafter = Drafter.model_validate({"name": "d", **knobs, **model})
    env = NEWER_RUNNER if drafter.method is Method.DSPARK or own in FURTHER_HEADS else {}
    return Case(name, _argv(engine, drafter, models, adapter=adapter), env)


def _argv(
    engine: Engine,
    drafter: Drafter | None,
    models: Path,
    *,
    nodes: int = 1,
    rank: int = 0,
    adapter: Adapter | None = None,
) -> tuple[str, ...]:
    """The command line of the pod with this rank. Raises ValueError if specbench itself rejects the case."""
    family = TARGETS.get(drafter.method, "llama") if drafter else "llama"
    target = Target(name="acme/tiny", path=str(models / family), adapter=adapter)
    order = LaunchRequest(engine, target, drafter, slots=4, nodes=nodes)
    if found := launch_problems(order):
        raise ValueError("; ".join(map(str, found)))
    launch = LAUNCHERS[engine.kind].launch(order)
    configs = _configs_folder(models)
    for name, text in launch.configs.items():
        (configs / name).write_text(text)
    network = ("--host", "127.0.0.1", "--port", str(launch.port))
    in_folder = with_config_folder(launch, str(configs))
    args = in_folder.worker_args if rank and in_folder.worker_args else in_folder.args
    return tuple(each.replace(LEADER, "127.0.0.1").replace(RANK, str(rank)) for each in (*args, *network))
