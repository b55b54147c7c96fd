"""Differences between two results other than their figures: reported ones, and ones that prevent a comparison.

Another engine, version, GPU, drafter or argument may be the object of a comparison, so it is reported. Other prompts,
other sampling or other limits of the answers are different work: no ratio is computed, because it would be meaningless.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from specbench_api.outcome.provenance import FACTS, FactComparability, FactName
from specbench_api.plan.plan import Plan
from specbench_api.spec.workload import Workload
from specbench_client.analysis.compare.stored_result import StoredResult
from specbench_client.documents.arrival_pattern import ArrivalPattern
from specbench_client.documents.comparison import Difference

LONGEST = 160
"""Maximum number of characters shown of one value."""
UNKNOWN = "not known"
_EXCLUDED_ENGINE_FIELDS = ("kind", "image")
_LOAD = ("slots", "requests", "requestsPerStream", "durationSeconds", "warmupRequests", "repeats", "order", "stop")
_PLACE = ("gpus", "gpuResourceName", "nodeSelector", "template", "client")
_OBSERVED = (
    ("engine_version", "Engine version"),
    ("engine_model", "Model served"),
    ("image_digest", "Engine image"),
    ("client_version", "Client version"),
)
_EXCLUDED_FACTS = (FactName.ENGINE_VERSION, FactName.MODEL, FactName.IMAGE, FactName.STARTED)
"""Facts that are reported under another name here, or that always differ."""
_OF_DRAFTERS = (FactName.DRAFTER_AT_WORK,)
"""Facts that differ between the arms of a run, but not between two results of the same arms."""


def differences(before: StoredResult, after: StoredResult) -> list[Difference]:
    """Return the differences that do not prevent a comparison, the most relevant first."""
    pairs = [
        *_declared(before.plan, after.plan),
        *_recorded(before, after),
        *_facts(before, after),
        *_of_workloads(before.plan, after.plan),
    ]
    different = [(what, *shorten_both(old, new)) for what, old, new in pairs if old != new]
    return [Difference(name=what, before=old, after=new) for what, old, new in different]


def refusals(before: StoredResult, after: StoredResult) -> list[str]:
    """Return why the two results cannot be compared at all; empty if they can."""
    found = []
    if before.summary.simulated != after.summary.simulated:
        simulated = "the earlier" if before.summary.simulated else "the later"
        found.append(f"{simulated} result is a simulation, but the other one is a measurement")
    arrivals = [ArrivalPattern.of(result.plan.load).words for result in (before, after)]
    if arrivals[0] != arrivals[1]:
        found.append(f"the arrivals of requests differ: {arrivals[0]} → {arrivals[1]}")
    if not found:
        return []
    others = {each.name for each in after.plan.workloads}
    shared = [each.name for each in before.plan.workloads if each.name in others]
    return found + [f"{name}: {why}" for name in shared if (why := workload_difference(before, after, name))]


def workload_difference(before: StoredResult, after: StoredResult, workload: str) -> str:
    """Return every reason why this workload's cells cannot be compared; empty if they can."""
    was, now = (result.plan.workload(workload) for result in (before, after))
    different = [(name, *shorten_both(old, new)) for name, old, new in _work(was, now) if old != new]
    observed = [result.observed_of(workload) for result in (before, after)]
    prompts = [known_values(point.dataset_fingerprint for point in points) for points in observed]
    traces = [known_values(point.trace_fingerprint for point in points) for points in observed]
    templates = [known_values(point.chat_template_sha256 for point in points) for points in observed]
    tokenizers = [known_values(point.tokenizer_sha256 for point in points) for points in observed]
    different += [
        (what, f"fingerprint {_fingerprint(old)}", _fingerprint(new))
        for what, (old, new) in (
            ("prompts", prompts),
            ("arrival trace", traces),
            ("chat template", templates),
            ("tokenizer of the chat template", tokenizers),
        )
        if old and new and old != new
    ]
    if not all(prompts) and was.dataset != now.dataset:
        different.append(("prompts", *shorten_both(_text(was.dataset.to_dict()), _text(now.dataset.to_dict()))))
    return "; ".join(f"different {what}: {old} → {new}" for what, old, new in different)


def _declared(before: Plan, after: Plan) -> Iterator[tuple[str, str, str]]:
    """Yield what was requested."""
    yield "Model", _model(before), _model(after)
    yield "Engine", str(before.engine.kind), str(after.engine.kind)
    yield "Requested engine image", *_both(before.engine.to_dict(), after.engine.to_dict(), "image")
    settings = [
        {k: v for k, v in plan.engine.to_dict().items() if k not in _EXCLUDED_ENGINE_FIELDS} for plan in (before, after)
    ]
    for name in dict.fromkeys([*settings[0], *settings[1]]):
        yield f"engine.{name}", *_both(settings[0], settings[1], name)
    old, new = ({arm.name: arm for arm in plan.arms} for plan in (before, after))
    for name in (name for name in old if name in new):
        drafters = [arm.drafter.to_dict() if arm.drafter else {} for arm in (old[name], new[name])]
        for key in dict.fromkeys(key for each in drafters for key in each if key != "name"):
            yield f"Drafter {name}: {key}", *_both(drafters[0], drafters[1], key)
    yield "promptCache", str(before.prompt_cache), str(after.prompt_cache)
    loads = [plan.load.to_dict() for plan in (before, after)]
    for name in _LOAD:
        yield f"load.{name}", *_both(loads[0], loads[1], name)
    placements = [plan.placement.to_dict() for plan in (before, after)]
    for name in _PLACE:
        yield f"placement.{name}", *_both(placements[0], placements[1], name)


def _recorded(before: StoredResult, after: StoredResult) -> Iterator[tuple[str, str, str]]:
    """Yield what the manifests recorded."""
    for field, title in _OBSERVED:
        old, new = (
            known_values(getattr(each.observed, field) for each in result.manifests.values())
            for result in (before, after)
        )
        if old and new:
            yield title, ", ".join(old), ", ".join(new)


def _facts(before: StoredResult, after: StoredResult) -> Iterator[tuple[str, str, str]]:
    """Yield the facts recorded about launches; if one side has none at all, that is reported once."""
    if bool(before.launches) != bool(after.launches):
        yield "Hardware", _whether(before), _whether(after)
    for name, about in FACTS.items():
        compared = about.comparability in (FactComparability.MUST, FactComparability.NOTED) or name in _OF_DRAFTERS
        if compared and name not in _EXCLUDED_FACTS:
            old, new = (
                known_values(_text(value) for launch in side.launches if (value := launch.value(name)) is not None)
                for side in (before, after)
            )
            if old and new:
                yield _title(name), ", ".join(old), ", ".join(new)


def _whether(result: StoredResult) -> str:
    return "recorded" if result.launches else UNKNOWN


def _of_workloads(before: Plan, after: Plan) -> Iterator[tuple[str, str, str]]:
    old, new = ({each.name: each for each in plan.workloads} for plan in (before, after))
    for name in (name for name in old if name in new):
        yield f"Dataset of {name}", _text(old[name].dataset.to_dict()), _text(new[name].dataset.to_dict())
        yield f"thinkTime of {name}", *_both(old[name].to_dict(), new[name].to_dict(), "thinkTime")


def _work(before: Workload, after: Workload) -> Iterator[tuple[str, str, str]]:
    """Yield what changes the answers on any engine; the dataset is identified by its fingerprint."""
    yield "sampling", _text(before.sampling.to_dict()), _text(after.sampling.to_dict())
    yield "output limits", _text(before.output.to_dict()), _text(after.output.to_dict())
    yield "request fields", _text(before.measured_fields), _text(after.measured_fields)
    yield "answers", _answers(before), _answers(after)
    yield "chat template", _template(before), _template(after)


def _answers(workload: Workload) -> str:
    return _text(None if workload.answers is None else workload.answers.to_dict())


def _template(workload: Workload) -> str:
    """Who applies the template, and its arguments; the template itself is identified by its fingerprint."""
    template = workload.client_template
    return "the engine's own" if template is None else f"by the client, {_text([template.kwargs, str(template.today)])}"


def _model(plan: Plan) -> str:
    target = plan.target.to_dict()
    more = {key: value for key, value in target.items() if key not in ("name", "revision")}
    return f"{target['name']}@{target['revision']}{f' {_text(more)}' if more else ''}"


def _both(before: Mapping[str, Any], after: Mapping[str, Any], name: str) -> tuple[str, str]:
    return _text(before.get(name)), _text(after.get(name))


def known_values(values: Iterable[str | None]) -> list[str]:
    """Return the distinct known values, sorted."""
    return sorted({value for value in values if value is not None})


def _text(value: Any) -> str:
    if value is None:
        return "–"
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, ensure_ascii=False)


def _fingerprint(values: list[str]) -> str:
    return ", ".join(value[:12] for value in values)


def shorten_both(old: str, new: str) -> tuple[str, str]:
    """Return at most LONGEST characters of each of two values, for messages: from shortly before they differ."""
    alike = next((at for at, (mine, its) in enumerate(zip(old, new, strict=False)) if mine != its), 0)
    begin = max(alike - LONGEST // 4, 0) if max(len(old), len(new)) > LONGEST else 0
    before, after = (
        f"{'…' if begin else ''}{text[begin : begin + LONGEST]}{'…' if len(text) > begin + LONGEST else ''}"
        for text in (old, new)
    )
    return before, after


def _title(name: FactName) -> str:
    title = str(name).replace("_", " ")
    return title.upper() if len(title) <= len("gpu") else title[:1].upper() + title[1:]
