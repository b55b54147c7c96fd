"""What was asked of an endpoint on the command line of `measure`, as the plan of a run with one arm."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from specbench_api.errors import InvalidSpec
from specbench_api.plan.expand import lay_out
from specbench_api.plan.plan import Plan
from specbench_api.spec.chat_template import AppliedBy
from specbench_api.spec.engine import EngineKind
from specbench_api.spec.load import Process
from specbench_api.spec.reading import parse_run
from specbench_api.spec.run import NAME, NAME_MAX
from specbench_client.cli.flags import base_url, in_flags, levels
from specbench_client.errors import BadInput
from specbench_client.workload.guess import guess_dataset

UNUSED_SLOTS = 8
"""An endpoint serves as many requests at once as it was started for; the spec asks for a number with a rate."""


@dataclass(frozen=True)
class Asked:
    """The command line, by the names of its options."""

    endpoint: str
    model: str
    dataset: str
    concurrency: tuple[tuple[float, ...], ...]
    rate: tuple[tuple[float, ...], ...]
    arrival: str | None
    burstiness: float | None
    trace: str | None
    requests: int | None
    duration: int | None
    max_tokens: int
    temperature: float
    top_p: float
    seed: int
    ignore_eos: bool
    no_stream: bool
    tokenizer: str | None
    extra_body: str | None
    headers: tuple[str, ...]
    warmup: int
    repeats: int
    dialect: str
    workers: int | None
    results: str
    name: str | None
    new: bool
    keep_text: bool
    slo_ttft_ms: float | None
    slo_tpot_ms: float | None
    slo_e2e_ms: float | None
    output: str


def plan_of(asked: Asked) -> Plan:
    """One arm, the endpoint, at every load. Raises BadInput, in the words of the flags."""
    _refuse_contradictions(asked)
    try:
        return lay_out(parse_run(_resource(asked)))
    except InvalidSpec as error:
        raise BadInput("\n".join(in_flags(str(problem)) for problem in error.problems)) from error


def _resource(asked: Asked) -> dict[str, Any]:
    spec = {
        "model": {"name": asked.model},
        "engine": {"kind": str(EngineKind.EXTERNAL), "endpoint": base_url(asked.endpoint), "dialect": asked.dialect},
        "workloads": [
            {
                "name": "measured",
                "dataset": guess_dataset(asked.dataset),
                "sampling": {"temperature": asked.temperature, "topP": asked.top_p, "seed": asked.seed},
                "output": {
                    "maxTokens": asked.max_tokens,
                    "ignoreEos": asked.ignore_eos,
                    "stream": not asked.no_stream,
                },
                "extraBody": _body(asked.extra_body),
                **_template(asked.tokenizer),
            }
        ],
        "load": _load(asked),
        "results": {"s3": {"bucket": "not-used-here"}},
    }
    metadata = {"name": run_name(asked.model) if asked.name is None else _named(asked.name)}
    return {"apiVersion": "specbench.io/v1alpha1", "kind": "SpecBenchRun", "metadata": metadata, "spec": spec}


def run_name(model: str) -> str:
    """A name that a run may have, from the model's."""
    words = re.sub(r"[^a-z0-9]+", "-", model.rpartition("/")[2].lower()).strip("-")
    return (words if re.match(r"[a-z]", words) else f"m-{words}")[:NAME_MAX].strip("-")


def _named(name: str) -> str:
    if not re.fullmatch(NAME, name) or len(name) > NAME_MAX:
        what = "lower case letters, digits and dashes, with a letter in front and no dash at the end"
        raise BadInput(f"--name {name!r} is no name of a run: give at most {NAME_MAX} characters, {what}")
    return name


def _refuse_contradictions(asked: Asked) -> None:
    """Flags that are well formed and cannot go together. Raises BadInput with both."""
    for problem in _contradictions(asked):
        raise BadInput(problem)


def _contradictions(asked: Asked) -> Iterator[str]:
    closed, trace = bool(asked.concurrency), asked.arrival == Process.TRACE
    arrival = {"--arrival": asked.arrival, "--burstiness": asked.burstiness, "--trace": asked.trace}
    if closed and asked.rate:
        yield "--concurrency is a closed loop and --rate an open one: give one of them"
    if not closed and not asked.rate and not trace:
        yield "how hard? give --concurrency N (closed loop), --rate R (open loop) or --arrival Trace"
    for flag, value in _given(arrival).items():
        if closed:
            yield f"{flag} {value} is of an open loop, --concurrency a closed one: give --rate instead, or no {flag}"
    if asked.burstiness is not None and asked.arrival != Process.GAMMA:
        yield f"--burstiness {asked.burstiness:g} shapes Gamma's gaps alone: add --arrival Gamma, or leave it out"
    if trace and asked.trace is None:
        yield "--arrival Trace needs the recording: add --trace FILE"
    if asked.trace is not None and not trace:
        yield f"--trace {asked.trace} is replayed by --arrival Trace alone: add that, or leave --trace out"
    if asked.requests is not None and asked.duration is not None:
        yield "a point ends by --requests or by --duration: give one of them"


def _load(asked: Asked) -> Mapping[str, Any]:
    closed, rates = levels("--concurrency", asked.concurrency), levels("--rate", asked.rate)
    arrival = {"process": asked.arrival, "burstiness": asked.burstiness, "uri": asked.trace}
    open_loop: dict[str, Any] = {"slots": UNUSED_SLOTS, "arrival": {**_given(arrival), "seed": asked.seed}}
    return {
        **({"concurrency": closed} if closed else open_loop),
        **_given({"rate": rates or None, "requests": asked.requests, "durationSeconds": asked.duration}),
        "warmupRequests": asked.warmup,
        "repeats": asked.repeats,
        "order": "Sequential",
    }


def _template(tokenizer: str | None) -> dict[str, Any]:
    return {} if tokenizer is None else {"chatTemplate": {"appliedBy": str(AppliedBy.CLIENT), "tokenizer": tokenizer}}


def _given(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}


def _body(text: str | None) -> Any:
    try:
        found = json.loads(text or "{}")
    except ValueError as error:
        raise BadInput(f"--extra-body is no JSON: {error}: give an object, such as '{{\"top_k\": 20}}'") from error
    if not isinstance(found, dict):
        raise BadInput("--extra-body is no object: give one, such as '{\"top_k\": 20}'")
    return found
