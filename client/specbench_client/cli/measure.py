"""`specbench measure`: measure an endpoint that is already running."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from specbench_api.outcome.summary import REPEATS_IN_TURNS
from specbench_api.plan.plan import Plan
from specbench_api.spec.engine import DialectName
from specbench_api.spec.load import REPEATS_MAX, Arrival, ArrivalProcess, Load
from specbench_api.spec.secret_refs import API_KEY_VARIABLE
from specbench_api.spec.workload import Output, Sampling, SystemPrompt
from specbench_client.cli.interruption import run_until_interrupted
from specbench_client.cli.measure_plan import (
    AUTO,
    PROMPT_CACHES,
    MeasureOptions,
    endpoint_urls,
    plan_for_endpoints,
    reject_contradictions,
)
from specbench_client.cli.options import (
    KEEP_TEXT,
    NEW,
    OUTPUT,
    PERCENTILES,
    RESULTS,
    SchemaNumber,
    SchemaNumbers,
    slo_from_options,
    slo_options,
)
from specbench_client.cli.streams import echo
from specbench_client.errors import BadInput
from specbench_client.known_secrets import api_key_header
from specbench_client.load.load_shares import (
    RATE_PER_WORKER,
    STREAMS_PER_WORKER,
    WORKERS_PER_CORE,
    max_workers,
    usable_cores,
)
from specbench_client.report.text.measure_flags import with_flag_names
from specbench_client.transport.exchange import reject_reserved_headers

if TYPE_CHECKING:
    from specbench_client.cli.run_execution import RunOptions

FLAGS_ELSEWHERE = {
    "--base-url": "--endpoint",
    "--num-prompts": "--requests",
    "--request-rate": "--rate",
    "--target": "--endpoint",
    "--url": "--endpoint",
}
"""Flags of vllm bench serve, guidellm and AIPerf for which click would suggest the wrong flag of ours, or none."""


class MeasureCommand(click.Command):
    """A command that answers flags of other load generators with its own."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse as click does. Raises UsageError."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            ours = FLAGS_ELSEWHERE.get(error.option_name)
            if ours is None:
                raise
            hint = f"No such option {error.option_name!r}. Did you mean {ours!r}?"
            raise click.NoSuchOption(error.option_name, hint, ctx=ctx) from error


_HEADER = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ ]?([^\r\n\0]*)")


def request_headers(given: Sequence[str], key_variable: str | None = None) -> dict[str, str]:
    """Return the headers of every request: the given ones, and the key from the environment unless they contain one.

    `key_variable`: the variable that the user named; it must be set. Raises BadInput for a header that is malformed,
    repeated or reserved.
    """
    headers: dict[str, str] = {}
    for text in given:
        found = _HEADER.fullmatch(text)
        if not found:
            raise BadInput(f"--header {text!r} is not 'NAME: VALUE': give for example 'X-Tenant: bench'")
        if found[1].lower() in map(str.lower, headers):
            raise BadInput(f"--header {found[1]} is given twice: give it once")
        headers[found[1]] = found[2]
    reject_reserved_headers(headers)
    return headers if "authorization" in map(str.lower, headers) else {**_authorization(key_variable), **headers}


def _authorization(named: str | None) -> dict[str, str]:
    if named:
        if not os.environ.get(named):
            raise BadInput(f"--api-key-env {named}: this environment variable is not set: export it with the key")
        # Also in the processes of the client, the key is removed from what servers report by this one name.
        os.environ[API_KEY_VARIABLE] = os.environ[named]
    return api_key_header()


@click.command(cls=MeasureCommand)
@click.option(
    "--endpoint",
    required=True,
    multiple=True,
    metavar="[NAME=]URL",
    help="URL of the engine: http://127.0.0.1:8000. With --baseline repeatable; NAME is shown in tables.",
)
@click.option("--baseline", metavar="URL", help="Server to compare with; the endpoints are measured in turns with it.")
@click.option(
    "--model", metavar="NAME", help="Name of the model in its requests.  [default: the only one that it serves]"
)
@click.option(
    "--dataset",
    required=True,
    metavar="NAME-or-FILE",
    help="Prompts: a JSONL, JSON, Parquet or CSV file, SOURCE:FILE, or a source on the hub; see `specbench dataset"
    " list`.",
)
@click.option(
    "--system-prompt-tokens",
    type=SchemaNumber(SystemPrompt, "tokens"),
    metavar="N",
    help="Begin every prompt with the same system message of N random words.",
)
@click.option(
    "--concurrency",
    "-c",
    multiple=True,
    type=SchemaNumbers(SchemaNumber(Load, "concurrency")),
    help="Closed loop: number of concurrent requests. Repeatable.",
)
@click.option(
    "--rate",
    "-r",
    multiple=True,
    type=SchemaNumbers(SchemaNumber(Load, "rate")),
    help="Open loop: conversations per second. Repeatable.",
)
@click.option(
    "--sweep",
    is_flag=True,
    help="Closed loop: 1, 2, 4, … requests, until the throughput grows by less than 5 % or the goodput falls.",
)
@click.option(
    "--arrival",
    type=click.Choice([str(process) for process in ArrivalProcess], case_sensitive=False),
    metavar=f"[{'|'.join(ArrivalProcess)}]",  # click would show them in small letters
    help="Open loop: the arrival process.  [default: Poisson]",
)
@click.option(
    "--burstiness",
    type=SchemaNumber(Arrival, "burstiness"),
    help="With --arrival Gamma: shape of the gaps; below 1 is burstier than Poisson.",
)
@click.option(
    "--max-in-flight",
    type=SchemaNumber(Arrival, "max_in_flight"),
    metavar="N",
    help="Open loop: most conversations at once; others wait, and their latency counts from the scheduled time.",
)
@click.option(
    "--trace",
    metavar="FILE",
    help="With --arrival Trace: JSONL or CSV with a column `timestamp` (s; in Mooncake's: ms); repeated if needed.",
)
@click.option(
    "--requests",
    "-n",
    type=SchemaNumber(Load, "requests"),
    metavar="N",
    help="Conversations per point.  [default: every prompt once; with --baseline, about six seconds]",
)
@click.option(
    "--duration",
    type=SchemaNumber(Load, "duration_seconds"),
    metavar="SECONDS",
    help="Instead of --requests: start conversations for this many seconds, then let them finish.",
)
@click.option(
    "--max-tokens",
    type=SchemaNumber(Output, "max_tokens"),
    default=256,
    show_default=True,
    metavar="N",
    help="Maximum tokens of an answer.",
)
@click.option(
    "--temperature",
    type=SchemaNumber(Sampling, "temperature"),
    default=0.0,
    show_default=True,
    help="Sampling temperature; 0 is greedy.",
)
@click.option(
    "--top-p",
    type=SchemaNumber(Sampling, "top_p"),
    default=1.0,
    show_default=True,
    help="Nucleus sampling probability.",
)
@click.option(
    "--seed",
    type=SchemaNumber(Sampling, "seed"),
    default=0,
    show_default=True,
    help="Seed of sampling and of arrivals.",
)
@click.option("--ignore-eos", is_flag=True, help="Generate past the end of the answer, up to --max-tokens.")
@click.option(
    "--no-stream", is_flag=True, help="Request whole answers; measures latency and tokens, but no TTFT and no TPOT."
)
@click.option(
    "--prompt-cache",
    type=click.Choice(list(PROMPT_CACHES)),
    default="as-served",
    show_default=True,
    help="as-served: servers may reuse earlier prompts, as for your users. disabled: they must not, which compares"
    " drafting alone; each request disables llama.cpp's cache, other servers must run without a prefix cache.",
)
@click.option(
    "--tokenizer",
    metavar="NAME-or-FOLDER",
    help="Apply this tokenizer's chat template in the client, and send token ids.  [default: send messages]",
)
@click.option("--extra-body", metavar="JSON", help='Additional fields of each request: {"top_k": 20}')
@click.option(
    "--answers",
    metavar="JSON",
    help='What answers are checked for, as workloads[].answers: {"expected": {"match": "Number"}}, jsonSchema or tools',
)
@click.option(
    "--header",
    "headers",
    multiple=True,
    metavar="'NAME: VALUE'",
    help="Header of every request; never stored. Repeatable.",
)
@click.option(
    "--api-key-env",
    metavar="NAME",
    help=f"Environment variable with the API key.  [default: {API_KEY_VARIABLE}, if set]",
)
@click.option(
    "--warmup",
    type=SchemaNumber(Load, "warmup_requests"),
    default=4,
    show_default=True,
    metavar="N",
    help="Minimum number of warm-up requests before the first point; 0: no warm-up.",
)
@click.option(
    "--repeats",
    type=SchemaNumber(Load, "repeats", REPEATS_MAX),
    metavar="N",
    help="How often to measure each load. `gate`, and any claim of a difference, need 3 or more.  [default: 1; with"
    f" --baseline {REPEATS_IN_TURNS}; with --until-sure at most {REPEATS_MAX}]",
)
@click.option(
    "--until-sure",
    is_flag=True,
    help=f"With --baseline: stop as soon as every speed-up is clear, after {REPEATS_IN_TURNS} repeats at the earliest.",
)
@click.option(
    "--dialect",
    type=click.Choice([AUTO, *(str(name) for name in DialectName)]),
    default=AUTO,
    show_default=True,
    help="The engine's dialect, detected from its pages; all but openai report tokens per chunk and acceptance.",
)
@click.option(
    "--workers",
    type=click.IntRange(min=1),
    metavar="N",
    help=(
        f"Processes that send the load, at most {WORKERS_PER_CORE} per core, where they delay each other's reads."
        f"  [default: one per {STREAMS_PER_WORKER} concurrent requests or {RATE_PER_WORKER:g} conversations/s, at most"
        " one per usable core]"
    ),
)
@RESULTS
@click.option("--name", metavar="NAME", help="Name of the run in the results.  [default: derived from --model]")
@NEW
@KEEP_TEXT
@slo_options
@PERCENTILES
@OUTPUT
def measure(**options: Any) -> int:
    """Measure a running server, or compare running servers, with real prompts; every request is recorded.

    \b
      specbench simulate --port 8000 --drafter eagle3 &           an engine to try it with
      specbench simulate --port 8001 --drafter none &             and a second one, without a drafter
      specbench measure --endpoint http://127.0.0.1:8000 --baseline http://127.0.0.1:8001 \\
        --dataset examples/prompts.jsonl --concurrency 8          the speed-up of one over the other
      specbench measure --endpoint http://127.0.0.1:8000 --dataset examples/prompts.jsonl --concurrency 1,8
      specbench measure … --sweep                                         concurrency 1, 2, 4, … until saturation
      specbench measure … --rate 2,4 --duration 60                        open loop, instead of --concurrency
      specbench measure … --rate 5 --arrival Gamma --burstiness 0.25      bursts: gaps with a CV of 2
      specbench measure … --arrival Trace --trace arrivals.csv            recorded arrival times
      specbench measure … --slo-ttft-ms 500 --slo-tpot-ms 35              with goodput: requests/s within these limits

    If a run was interrupted, the same command continues it; a finished run is measured again as a new run. The API key
    is read from OPENAI_API_KEY, or from the variable that --api-key-env names.

    With --baseline, the servers take turns (ABBA) with the same prompts and load, so that a drift of the machine
    cancels. Without --requests and --duration, a turn has as many requests as take about six seconds, but at least
    four per stream. A server with a prompt cache needs prompts that it has not seen: each turn takes the next ones of
    the dataset; with --duration, turns begin at places far from each other.

    `specbench run` launches engines itself, each with and without drafters.
    """
    plan, run_options = planned_measurement(MeasureOptions(**options))
    from specbench_client.cli.run_execution import run_and_print  # noqa: PLC0415  see planned_measurement

    try:
        return run_and_print(plan, run_options)
    except BadInput as error:  # may name fields of the spec, for example for an impossible schedule
        raise BadInput(with_flag_names(str(error)), error.reason) from error


def planned_measurement(given: MeasureOptions) -> tuple[Plan, RunOptions]:
    """Return the plan, and the options of its execution. Raises BadInput."""
    _check_workers(given.workers, usable_cores())
    if given.sweep:  # Invalid options are reported before an endpoint is contacted.
        reject_contradictions(given)
    else:
        plan_for_endpoints(given)
    headers = request_headers(given.headers, given.api_key_env)
    given = with_detected(given, headers)
    if given.sweep:
        from specbench_client.cli.measure_blocks import with_swept_loads  # noqa: PLC0415

        given = with_swept_loads(given, headers)
    plan = plan_for_endpoints(given)
    if given.baseline is not None:
        from specbench_client.cli.measure_blocks import warn_of_repeated_prompts, with_block_size  # noqa: PLC0415

        if given.requests is None and given.duration is None:
            plan = with_block_size(given, plan, headers)
        warn_of_repeated_prompts(plan)
    # Imported late, because pandas takes seconds to import and an invalid argument should be reported at once.
    from specbench_client.cli.run_execution import RunOptions  # noqa: PLC0415
    from specbench_client.drive.options import ClientOptions  # noqa: PLC0415

    return plan, RunOptions(
        base_dir=Path.cwd(),
        startup_deadline_s=0.0,  # no engine is started
        results=given.results,
        output=given.output,
        client=ClientOptions(given.keep_text, headers, given.workers),
        new=given.new,
        reuse_finished=False,
        slo=slo_from_options(given.slo_ttft_ms, given.slo_tpot_ms, given.slo_e2e_ms),
        statistics=given.percentiles,
    )


def with_detected(options: MeasureOptions, headers: Mapping[str, str]) -> MeasureOptions:
    """Return the options with the models and dialects of the endpoints, and print what was detected.

    Raises EngineFailed if an endpoint cannot be measured, and BadInput if the user must choose.
    """
    if options.model is not None and options.dialect != AUTO:
        return options
    from specbench_client.drive.endpoint_detection import detect_endpoint  # noqa: PLC0415 -- imports aiohttp

    dialects, models, urls = dict[str, str](), dict[str, str](), endpoint_urls(options)
    for name, url in urls.items():
        detected = run_until_interrupted(
            detect_endpoint(
                url,
                headers,
                options.model,
                None if options.dialect == AUTO else DialectName(options.dialect),
                key_variable=options.api_key_env or API_KEY_VARIABLE,
            )
        )
        echo(f"detected: {f'{name} at {url} is ' if len(urls) > 1 else ''}{detected.line()}", err=True)
        for warning in detected.warnings:
            echo(f"warning: {f'{name} at {url}: ' if len(urls) > 1 else ''}{warning}", err=True)
        dialects[url], models[url] = str(detected.dialect), detected.model
    return replace(options, dialects=dialects, models=models if options.model is None else {})


def _check_workers(workers: int | None, cores: int) -> None:
    """Raise BadInput for more workers than the cores can run without delays."""
    limit = max_workers(cores)
    if workers is not None and workers > limit:
        raise BadInput(
            f"--workers {workers} is too many for the {cores} usable cores of this machine: workers would wait for each"
            f" other, and the wait would count as latency of the engine: give at most {limit}, or leave out --workers"
        )
