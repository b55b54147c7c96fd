"""In what two results differ beside their figures: what is only said, and what leaves nothing to compare.

Another engine, version, GPU, drafter or argument is what one may want to compare, so it is said. Other prompts, other
sampling or other limits of the answers are other work: no ratio over them means anything, and none is given.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from specbench_api.outcome.comparison import Difference
from specbench_api.outcome.facts import FACTS, Alike, FactName
from specbench_api.outcome.summary import Arrivals
from specbench_api.plan.plan import Plan
from specbench_api.spec.workload import Workload
from specbench_client.analysis.compare.result import Result

LONGEST = 160
"""Characters of one value."""
UNSEEN = "not known"
_ENGINE_APART = ("kind", "image")
_LOAD = ("slots", "requests", "durationSeconds", "warmupRequests", "repeats", "order")
_PLACE = ("gpus", "gpuResourceName", "nodeSelector", "engineResources")
_OBSERVED = (
    ("engine_version", "Engine version"),
    ("engine_model", "Model served"),
    ("image_digest", "Engine image"),
    ("client_version", "Client version"),
)
_FACTS_APART = (FactName.ENGINE_VERSION, FactName.MODEL, FactName.IMAGE, FactName.STARTED)
"""Facts that are told by another name here, or that differ by their nature."""


def differences(before: Result, after: Result) -> list[Difference]:
    """What is said and changes nothing, in the order in which a person would ask."""
    pairs = [
        *_declared(before.plan, after.plan),
        *_seen(before, after),
        *_facts(before, after),
        *_of_workloads(before.plan, after.plan),
    ]
    return [Difference(what=what, before=_short(old), after=_short(new)) for what, old, new in pairs if old != new]


def refusals(before: Result, after: Result) -> list[str]:
    """Why nothing of the two can be compared; empty where that is not so."""
    found = []
    if before.summary.simulated != after.summary.simulated:
        simulated = "the earlier" if before.summary.simulated else "the later"
        found.append(f"{simulated} result is a simulation, and the other one a measurement")
    arrivals = [Arrivals.of(result.plan.load).words for result in (before, after)]
    if arrivals[0] != arrivals[1]:
        found.append(f"requests come otherwise: {arrivals[0]} → {arrivals[1]}")
    return found


def other_work(before: Result, after: Result, workload: str) -> str:
    """Why this workload's cells cannot be compared; empty where they can."""
    was, now = (result.plan.workload(workload) for result in (before, after))
    asked = [(name, old, new) for name, old, new in _work(was, now) if old != new]
    if asked:
        return "; ".join(f"other {name}: {_short(old)} → {_short(new)}" for name, old, new in asked)
    seen = [result.observed_of(workload) for result in (before, after)]
    prompts = [_values(point.dataset_fingerprint for point in points) for points in seen]
    traces = [_values(point.trace_fingerprint for point in points) for points in seen]
    templates = [_values(point.chat_template_sha256 for point in points) for points in seen]
    tokenizers = [_values(point.tokenizer_sha256 for point in points) for points in seen]
    for words, (old_ones, new_ones) in (
        ("other prompts", prompts),
        ("another trace of arrivals", traces),
        ("another chat template", templates),
        ("another tokenizer of the chat template", tokenizers),
    ):
        if old_ones and new_ones and old_ones != new_ones:
            return f"{words}: fingerprint {_fingerprint(old_ones)} → {_fingerprint(new_ones)}"
    if not all(prompts) and was.dataset != now.dataset:
        return f"other prompts: {_short(_text(was.dataset.to_dict()))} → {_short(_text(now.dataset.to_dict()))}"
    return ""


def _declared(before: Plan, after: Plan) -> Iterator[tuple[str, str, str]]:
    """What was asked for."""
    yield "Model", _model(before), _model(after)
    yield "Engine", str(before.engine.kind), str(after.engine.kind)
    yield "Engine image asked for", *_both(before.engine.to_dict(), after.engine.to_dict(), "image")
    settings = [{k: v for k, v in plan.engine.to_dict().items() if k not in _ENGINE_APART} for plan in (before, after)]
    for name in dict.fromkeys([*settings[0], *settings[1]]):
        yield f"engine.{name}", *_both(settings[0], settings[1], name)
    old, new = ({arm.name: arm for arm in plan.arms} for plan in (before, after))
    for name in (name for name in old if name in new):
        drafters = [_without_name(arm.drafter.to_dict()) if arm.drafter else {} for arm in (old[name], new[name])]
        for key in dict.fromkeys([*drafters[0], *drafters[1]]):
            yield f"Drafter {name}: {key}", *_both(drafters[0], drafters[1], key)
    loads = [plan.load.to_dict() for plan in (before, after)]
    for name in _LOAD:
        yield f"load.{name}", *_both(loads[0], loads[1], name)
    places = [plan.placement.to_dict() for plan in (before, after)]
    for name in _PLACE:
        yield f"placement.{name}", *_both(places[0], places[1], name)


def _seen(before: Result, after: Result) -> Iterator[tuple[str, str, str]]:
    """What the manifests saw."""
    for field, words in _OBSERVED:
        old, new = (_values(getattr(seen, field) for seen in result.observed.values()) for result in (before, after))
        if old and new:
            yield words, ", ".join(old), ", ".join(new)


def _facts(before: Result, after: Result) -> Iterator[tuple[str, str, str]]:
    """What the launches told. Where one side told nothing at all, that is said once."""
    if bool(before.launches) != bool(after.launches):
        yield "Hardware", _whether(before), _whether(after)
    for name, about in FACTS.items():
        if about.alike in (Alike.MUST, Alike.NOTED) and name not in _FACTS_APART:
            old, new = (_values(_told(launch.value(name)) for launch in side.launches) for side in (before, after))
            if old and new:
                yield _title(name), ", ".join(old), ", ".join(new)


def _whether(result: Result) -> str:
    return "seen" if result.launches else UNSEEN


def _of_workloads(before: Plan, after: Plan) -> Iterator[tuple[str, str, str]]:
    old, new = ({each.name: each for each in plan.workloads} for plan in (before, after))
    for name in (name for name in old if name in new):
        yield f"Dataset of {name}", _text(old[name].dataset.to_dict()), _text(new[name].dataset.to_dict())


def _work(before: Workload, after: Workload) -> Iterator[tuple[str, str, str]]:
    """What makes an answer another one, whatever the engine. The dataset is known by its fingerprint."""
    yield "sampling", _text(before.sampling.to_dict()), _text(after.sampling.to_dict())
    yield "limits of the answers", _text(before.output.to_dict()), _text(after.output.to_dict())
    yield "fields of the requests", _text(before.extra_body), _text(after.extra_body)
    yield "chat template", _template(before), _template(after)


def _template(workload: Workload) -> str:
    """Who applies it, and what it is told; which one it is, is known by its fingerprint."""
    template = workload.client_template
    return "the engine's own" if template is None else f"by the client, {_text([template.kwargs, str(template.today)])}"


def _model(plan: Plan) -> str:
    told = plan.target.to_dict()
    more = {key: value for key, value in told.items() if key not in ("name", "revision")}
    return f"{told['name']}@{told['revision']}{f' {_text(more)}' if more else ''}"


def _both(before: Mapping[str, Any], after: Mapping[str, Any], name: str) -> tuple[str, str]:
    return _text(before.get(name)), _text(after.get(name))


def _values(told: Iterable[str | None]) -> list[str]:
    """Each value once, in order; what nobody told is no value."""
    return sorted({value for value in told if value is not None})


def _told(value: Any) -> str | None:
    return None if value is None else _text(value)


def _text(value: Any) -> str:
    if value is None:
        return "–"
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, ensure_ascii=False)


def _without_name(data: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in data.items() if key != "name"}


def _fingerprint(values: list[str]) -> str:
    return ", ".join(value[:12] for value in values)


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def _title(name: FactName) -> str:
    words = str(name).replace("_", " ")
    return words.upper() if len(words) <= len("gpu") else words[:1].upper() + words[1:]
