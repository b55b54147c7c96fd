"""The options of `specbench measure` as the plan of a run with one arm per endpoint.

Options are checked by the schema of a SpecBenchRun. Users of `measure` never see its fields, so messages name the
flag, the given value, and what to give instead.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from specbench_api.errors import InvalidSpec
from specbench_api.outcome.summary import REPEATS_IN_TURNS
from specbench_api.plan.expansion import lay_out
from specbench_api.plan.plan import Plan
from specbench_api.spec.chat_template import AppliedBy
from specbench_api.spec.drafter import BASELINE_NAME
from specbench_api.spec.engine import SECRET, EngineKind, PromptCache, flaw_of
from specbench_api.spec.load import REPEATS_MAX, ArmOrder, ArrivalProcess
from specbench_api.spec.parsing import parse_run
from specbench_api.spec.run import NAME, NAME_MAX
from specbench_client.bounded_json import parse_json
from specbench_client.dialects.recognition import engine_url, server_address
from specbench_client.errors import BadInput
from specbench_client.report.text.measure_flags import with_flag_names
from specbench_client.workload.source_detection import guess_dataset


def levels(flag: str, given: tuple[tuple[float, ...], ...]) -> list[float]:
    """Return all levels of a repeatable option. Raises BadInput if a level occurs twice."""
    found = [level for one in given for level in one]
    twice = next((level for at, level in enumerate(found) if level in found[:at]), None)
    if twice is not None:
        raise BadInput(f"{flag} {twice:g} is given twice: give each level once, and --repeats to measure it more often")
    return found


def base_url(flag: str, endpoint: str) -> str:
    """Return the endpoint without the route that OpenAI clients need. Raises BadInput."""
    flaw = flaw_of(endpoint)
    if flaw is not None:
        shown = re.sub("[?#].+", lambda found: f"{found[0][0]}…", re.sub("//[^/]*@", "//…@", endpoint))  # keys
        problem = f"{flaw.problem}: give it with --header 'Authorization: …'" if flaw is SECRET else flaw
        raise BadInput(f"{flag} {shown!r} {problem}")
    return engine_url(endpoint)


PROMPT_CACHES = {"as-served": PromptCache.AS_SERVED, "disabled": PromptCache.DISABLED}
AUTO = "auto"
"""The value of --dialect that detects it."""
UNUSED_SLOTS = 8
"""A value for the field that the schema requires with a rate; a running endpoint has its own limit."""


@dataclass(frozen=True)
class MeasureOptions:
    """The command line, with the names of its options."""

    endpoint: tuple[str, ...]
    baseline: str | None
    model: str | None
    dataset: str
    system_prompt_tokens: int | None
    concurrency: tuple[tuple[float, ...], ...]
    rate: tuple[tuple[float, ...], ...]
    sweep: bool
    arrival: str | None
    burstiness: float | None
    max_in_flight: int | None
    trace: str | None
    requests: int | None
    duration: int | None
    max_tokens: int
    temperature: float
    top_p: float
    seed: int
    ignore_eos: bool
    no_stream: bool
    prompt_cache: str | None
    tokenizer: str | None
    extra_body: str | None
    answers: str | None
    headers: tuple[str, ...]
    warmup: int
    repeats: int | None
    until_sure: bool
    dialect: str
    api_key_env: str | None
    workers: int | None
    results: str
    name: str | None
    new: bool
    keep_text: bool
    slo_ttft_ms: float | None
    slo_tpot_ms: float | None
    slo_e2e_ms: float | None
    percentiles: tuple[str, ...] | None
    output: str
    dialects: Mapping[str, str] = field(default_factory=dict)
    """The detected dialects, by URL; empty if one was given."""
    models: Mapping[str, str] = field(default_factory=dict)
    """The models that the servers were found to serve, by URL; empty if one was given."""


def plan_for_endpoints(options: MeasureOptions) -> Plan:
    """Return a plan with one arm per endpoint at every load. Raises BadInput with the names of flags.

    Without a model or dialect, given or detected, it only shows whether the other options are valid.
    """
    reject_contradictions(options)
    try:
        plan = lay_out(parse_run(_resource(options)))
    except InvalidSpec as error:
        raise BadInput("\n".join(with_flag_names(str(problem)) for problem in error.problems)) from error
    return plan.model_copy(update={"stop": "WhenDecided"}) if options.until_sure else plan


def reject_contradictions(options: MeasureOptions) -> None:
    """Raise BadInput for the first flags that exclude each other."""
    for problem in _contradictions(options):
        raise BadInput(problem)


_NAMED = re.compile(r"([a-z0-9]([a-z0-9-]*[a-z0-9])?)=(https?://.*)")
_PREFIXED = re.compile(r"([^/]*)=https?://")
ENDPOINT_NAME = "endpoint"
"""Name of the arm of an endpoint without a name."""


def endpoint_urls(options: MeasureOptions) -> dict[str, str]:
    """Return the servers by the names of their arms. Raises BadInput if two have the same name or address."""
    if options.baseline is not None and _PREFIXED.match(options.baseline):
        raise BadInput(f"--baseline {options.baseline}: give the URL alone: its arm is always called {BASELINE_NAME}")
    baseline = {} if options.baseline is None else {BASELINE_NAME: base_url("--baseline", options.baseline)}
    named = dict(baseline)
    for number, text in enumerate(options.endpoint, start=1):
        found = _NAMED.fullmatch(text)
        prefix = _PREFIXED.match(text)
        if prefix and not found:
            raise BadInput(f"--endpoint {text}: the name {prefix[1]!r} may only have lower-case letters, digits and -")
        name = found[1] if found else ENDPOINT_NAME if len(options.endpoint) == 1 else f"{ENDPOINT_NAME}-{number}"
        url = base_url("--endpoint", found[3] if found else text)
        if name in named:
            owner = " by the baseline" if name == BASELINE_NAME else ""
            raise BadInput(f"--endpoint {text}: the name {name} is taken{owner}: give another NAME=URL")
        if server_address(url) in map(server_address, named.values()):
            raise BadInput(f"--endpoint {text}: the same server is given twice: give the URL of another one")
        named[name] = url
    return named


def _endpoints(options: MeasureOptions) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "url": url,
            **_without_none({"dialect": options.dialects.get(url), "model": options.models.get(url)}),
        }
        for name, url in endpoint_urls(options).items()
    ]


def _resource(options: MeasureOptions) -> dict[str, Any]:
    model = ["undetected", *options.models.values()][-1] if options.model is None else options.model
    spec = {
        "model": {"name": model},
        "engine": {
            "kind": str(EngineKind.EXTERNAL),
            "endpoints": _endpoints(options),
            **({} if options.dialect == AUTO else {"dialect": options.dialect}),
        },
        "workloads": [
            {
                "name": "prompts",
                "dataset": guess_dataset(options.dataset),
                **_system_prompt(options.system_prompt_tokens),
                "sampling": {"temperature": options.temperature, "topP": options.top_p, "seed": options.seed},
                "output": {
                    "maxTokens": options.max_tokens,
                    "ignoreEos": options.ignore_eos,
                    "stream": not options.no_stream,
                },
                "extraBody": _object("--extra-body", options.extra_body or "{}", '{"top_k": 20}'),
                **_answers(options.answers),
                **_template(options.tokenizer),
            }
        ],
        **({} if options.prompt_cache is None else {"promptCache": str(PROMPT_CACHES[options.prompt_cache])}),
        "load": _load(options),
        "results": {"s3": {"bucket": "not-used-here"}},
    }
    metadata = {"name": run_name(model) if options.name is None else _checked_name(options.name)}
    return {"apiVersion": "specbench.io/v1alpha1", "kind": "SpecBenchRun", "metadata": metadata, "spec": spec}


def _system_prompt(tokens: int | None) -> dict[str, Any]:
    return {} if tokens is None else {"systemPrompt": {"tokens": tokens}}


def run_name(model: str) -> str:
    """Derive a valid run name from the model's name."""
    words = re.sub(r"[^a-z0-9]+", "-", model.rpartition("/")[2].lower()).strip("-")
    return (words if re.match(r"[a-z]", words) else f"m-{words}")[:NAME_MAX].strip("-")


def _checked_name(name: str) -> str:
    if not re.fullmatch(NAME, name) or len(name) > NAME_MAX:
        rule = "lower-case letters, digits and dashes, starting with a letter and not ending with a dash"
        raise BadInput(f"--name {name!r} is not a valid run name: give at most {NAME_MAX} characters: {rule}")
    return name


def _contradictions(options: MeasureOptions) -> Iterator[str]:
    """Yield flags that exclude each other, naming both."""
    yield from _contradictory_loads(options)
    if options.requests is not None and options.duration is not None:
        yield "--requests and --duration both end a point: give one of them"
    if options.baseline is not None:
        if options.until_sure and options.repeats is not None and options.repeats < REPEATS_IN_TURNS:
            least = REPEATS_IN_TURNS
            yield f"--repeats {options.repeats} with --until-sure is the maximum: give {least} or more, or leave it out"
        return
    if len(options.endpoint) > 1:
        yield "several --endpoint have nothing to be compared with: add --baseline URL, or measure one of them"
    if options.until_sure:
        yield "--until-sure stops when a comparison is decided: add --baseline URL, or leave it out"


def _contradictory_loads(options: MeasureOptions) -> Iterator[str]:
    closed, trace = bool(options.concurrency), options.arrival == ArrivalProcess.TRACE
    arrival = {
        "--arrival": options.arrival,
        "--burstiness": options.burstiness,
        "--trace": options.trace,
        "--max-in-flight": options.max_in_flight,
    }
    if options.sweep:
        others = {"--concurrency": closed, "--rate": options.rate, "--arrival": options.arrival}
        yield from (f"--sweep chooses the loads itself: leave out {flag}" for flag, given in others.items() if given)
        closed = True
    if closed and options.rate:
        yield "--concurrency is a closed loop and --rate an open one: give one of them"
    if not closed and not options.rate and not trace:
        yield "no load: give --concurrency N (closed loop), --rate R (open loop), --arrival Trace or --sweep"
    for flag, value in _without_none(arrival).items():
        if closed:
            yield f"{flag} {value} needs an open loop, --concurrency is a closed one: give --rate, or leave out {flag}"
    if options.burstiness is not None and options.arrival != ArrivalProcess.GAMMA:
        yield f"--burstiness {options.burstiness:g} needs Gamma arrivals: add --arrival Gamma, or leave it out"
    if trace and options.trace is None:
        yield "--arrival Trace needs the recording: add --trace FILE"
    if options.trace is not None and not trace:
        yield f"--trace {options.trace} applies to --arrival Trace only: add that, or leave out --trace"


def _load(options: MeasureOptions) -> Mapping[str, Any]:
    closed, rates = levels("--concurrency", options.concurrency), levels("--rate", options.rate)
    arrival = {
        "process": options.arrival,
        "burstiness": options.burstiness,
        "uri": options.trace,
        "maxInFlight": options.max_in_flight,
    }
    open_loop: dict[str, Any] = {"slots": UNUSED_SLOTS, "arrival": {**_without_none(arrival), "seed": options.seed}}
    return {
        **({"concurrency": closed} if closed else open_loop),
        **_without_none({"rate": rates or None, "requests": options.requests, "durationSeconds": options.duration}),
        "warmupRequests": options.warmup,
        "repeats": options.repeats or _default_repeats(options),
        "order": str(ArmOrder.INTERLEAVED if options.baseline else ArmOrder.SEQUENTIAL),
    }


def _default_repeats(options: MeasureOptions) -> int:
    if options.until_sure:
        return REPEATS_MAX
    return 1 if options.baseline is None else REPEATS_IN_TURNS


def _template(tokenizer: str | None) -> dict[str, Any]:
    return {} if tokenizer is None else {"chatTemplate": {"appliedBy": str(AppliedBy.CLIENT), "tokenizer": tokenizer}}


def _without_none(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}


def _answers(text: str | None) -> dict[str, Any]:
    return {} if text is None else {"answers": _object("--answers", text, '{"expected": {"match": "Number"}}')}


def _object(flag: str, text: str, example: str) -> dict[str, Any]:
    """Return the JSON object that was given with a flag. Raises BadInput with an example."""
    try:
        found = parse_json(text)
    except ValueError as error:
        raise BadInput(f"{flag} is not valid JSON: {error}: give an object, such as '{example}'") from error
    if not isinstance(found, dict):
        raise BadInput(f"{flag} is not a JSON object: give one, such as '{example}'")
    return found
