"""`specbench measure`: the instrument alone, against an endpoint that already runs."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from specbench_api.errors import InvalidSpec
from specbench_api.plan.expand import lay_out
from specbench_api.plan.plan import Plan
from specbench_api.spec.chat_template import AppliedBy
from specbench_api.spec.engine import DialectName, EngineKind
from specbench_api.spec.load import Arrival, Load, Process
from specbench_api.spec.reading import parse_run
from specbench_api.spec.run import NAME, NAME_MAX
from specbench_api.spec.workload import Output, Sampling
from specbench_client.cli.elsewhere import KnowsOthers
from specbench_client.cli.flags import Number, Numbers, base_url, in_flags, levels
from specbench_client.cli.options import DEFAULT_RESULTS, NEW, OUTPUT
from specbench_client.cli.slo import asked_slo, slo_options
from specbench_client.errors import BadInput
from specbench_client.load.cores import most_workers, usable_cores
from specbench_client.transport.managed import refuse_managed
from specbench_client.workload.guess import guess_dataset

KEY_VARIABLE = "OPENAI_API_KEY"
UNUSED_SLOTS = 8
"""An endpoint serves as many requests at once as it was started for; the spec asks for a number with a rate."""
_HEADER = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ ]?([^\r\n\0]*)")


@click.command(cls=KnowsOthers)
@click.option("--endpoint", required=True, metavar="URL", help="The engine: http://127.0.0.1:8000")
@click.option("--model", required=True, metavar="NAME", help="The name under which it serves the model.")
@click.option(
    "--dataset",
    required=True,
    metavar="NAME-or-FILE",
    help="Prompts: JSONL, Parquet, CSV or Spec-Bench's question.jsonl; SOURCE:FILE; or a source that the hub serves.",
)
@click.option(
    "--concurrency",
    "-c",
    multiple=True,
    type=Numbers(Number(Load, "concurrency")),
    help="Closed loop: concurrent streams.",
)
@click.option(
    "--rate", "-r", multiple=True, type=Numbers(Number(Load, "rate")), help="Open loop: conversations a second."
)
@click.option(
    "--arrival",
    type=click.Choice([str(process) for process in Process], case_sensitive=False),
    help="Open loop: how they arrive.  [default: Poisson]",
)
@click.option(
    "--burstiness",
    type=Number(Arrival, "burstiness"),
    help="Gamma arrivals: shape of the gaps; below 1 burstier than Poisson.",
)
@click.option(
    "--trace",
    metavar="FILE",
    help="Arrival Trace: JSONL or CSV with a column `timestamp`; it goes round where more are asked for.",
)
@click.option(
    "--requests",
    "-n",
    type=Number(Load, "requests"),
    metavar="N",
    help="Conversations a point.  [default: every prompt once]",
)
@click.option(
    "--duration",
    type=Number(Load, "duration_seconds"),
    metavar="SECONDS",
    help="Instead of --requests: conversations begin for so long, and those that began are ended.",
)
@click.option(
    "--max-tokens",
    type=Number(Output, "max_tokens"),
    default=256,
    show_default=True,
    metavar="N",
    help="Most tokens of an answer.",
)
@click.option(
    "--temperature", type=Number(Sampling, "temperature"), default=0.0, show_default=True, help="0 is greedy."
)
@click.option("--top-p", type=Number(Sampling, "top_p"), default=1.0, show_default=True, help="Nucleus sampling.")
@click.option(
    "--seed",
    type=Number(Sampling, "seed"),
    default=0,
    show_default=True,
    help="Of the sampling, and of the arrivals.",
)
@click.option("--ignore-eos", is_flag=True, help="Go on past the natural end, up to --max-tokens.")
@click.option("--no-stream", is_flag=True, help="Ask for whole answers: latency and tokens, no TTFT and no TPOT.")
@click.option(
    "--tokenizer",
    metavar="NAME-or-FOLDER",
    help="Apply this tokenizer's chat template here, and send token ids.  [default: messages are sent]",
)
@click.option("--extra-body", metavar="JSON", help='Further fields of each request: {"top_k": 20}')
@click.option(
    "--header", "headers", multiple=True, metavar="'NAME: VALUE'", help="Sent with each request, kept nowhere."
)
@click.option(
    "--warmup",
    type=Number(Load, "warmup_requests"),
    default=4,
    show_default=True,
    metavar="N",
    help="Least requests before the first point; 0: none.",
)
@click.option(
    "--repeats",
    type=Number(Load, "repeats"),
    default=1,
    show_default=True,
    metavar="N",
    help="How often each load is measured.",
)
@click.option(
    "--dialect",
    type=click.Choice([str(name) for name in DialectName]),
    default=str(DialectName.OPENAI),
    show_default=True,
    help="What it speaks: all but openai tell tokens of each chunk, and acceptance.",
)
@click.option(
    "--workers",
    type=click.IntRange(min=1),
    metavar="N",
    help="Client processes, two a core at most.  [default: as the load needs, one a core at most]",
)
@click.option("--results", default=DEFAULT_RESULTS, show_default=True, metavar="DIR-or-URI", help="Where results go.")
@click.option("--name", metavar="NAME", help="Name of the run in the results.  [default: from the model's]")
@NEW
@click.option("--keep-text", is_flag=True, help="Keep the answers' texts in the records.")
@slo_options
@OUTPUT
def measure(**given: Any) -> int:
    """Measure an engine that already runs: real prompts, true times, every request's record kept.

    \b
      specbench simulate --port 8000 &          an engine to try it on: its model is `simulated`, its dialect vllm
      specbench measure --endpoint http://127.0.0.1:8000 --model simulated --dialect vllm \\
        --dataset examples/prompts.jsonl --concurrency 1,8
      specbench measure … --rate 2,4 --duration 60                        in the place of --concurrency: an open loop
      specbench measure … --rate 5 --arrival Gamma --burstiness 0.25      bursts: gaps with a CV of 2
      specbench measure … --arrival Trace --trace arrivals.csv            as recorded
      specbench measure … --slo-ttft-ms 500 --slo-tpot-ms 35              and how many requests a second were in time

    A run that was interrupted goes on; a finished one is measured again, beside the old one.
    The key of the endpoint is taken from OPENAI_API_KEY. To compare drafters, use `specbench run`: it launches every
    arm itself, alike but for the drafter, and interleaves it with its baseline.
    """
    wanted = Asked(**given)
    _refuse_crowd(wanted.workers, usable_cores())
    plan = plan_of(wanted)
    headers = headers_of(wanted.headers)
    # Only now: pandas and its kin take seconds, and an argument that is wrong should say so at once.
    from specbench_client.cli.measuring import Wish, measured  # noqa: PLC0415

    wish = Wish(
        base_dir=Path.cwd(),
        startup_deadline_s=0.0,  # nothing is started
        results=wanted.results,
        output=wanted.output,
        keep_text=wanted.keep_text,
        headers=headers,
        workers=wanted.workers,
        new=wanted.new,
        kept=False,
        slo=asked_slo(wanted.slo_ttft_ms, wanted.slo_tpot_ms, wanted.slo_e2e_ms),
    )
    try:
        return measured(plan, wish)
    except BadInput as error:  # a schedule that cannot be drawn, for one, speaks of the spec's fields
        raise BadInput(in_flags(str(error)), error.reason) from error


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


def _refuse_crowd(workers: int | None, cores: int) -> None:
    """More workers than the cores can carry. Raises BadInput."""
    most = most_workers(cores)
    if workers is not None and workers > most:
        raise BadInput(
            f"--workers {workers} is more than the {cores} usable cores of this machine can carry: they would wait for"
            f" one another, and that would be timed as the engine's; give at most {most}, or leave --workers out"
        )


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


def headers_of(given: Sequence[str]) -> dict[str, str]:
    """The user's headers, and the key where they have none. Raises BadInput: malformed, given twice, or not theirs."""
    headers: dict[str, str] = {}
    for text in given:
        found = _HEADER.fullmatch(text)
        if not found:
            raise BadInput(f"--header {text!r} is not 'NAME: VALUE'")
        if found[1].lower() in map(str.lower, headers):
            raise BadInput(f"--header {found[1]} is given twice: give it once")
        headers[found[1]] = found[2]
    refuse_managed(headers)
    return headers if "authorization" in map(str.lower, headers) else {**_key(), **headers}


def _key() -> dict[str, str]:
    key = os.environ.get(KEY_VARIABLE)
    return {"Authorization": f"Bearer {key}"} if key else {}
