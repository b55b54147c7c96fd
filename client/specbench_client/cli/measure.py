"""`specbench measure`: measure endpoints that are already running, as the arms of a run.

The flags that set fields of a SpecBenchRun are rows of `measure_flags`, and their values are checked by its models.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from specbench_api import API_VERSION
from specbench_api.errors import InvalidSpec
from specbench_api.plan.expansion import lay_out
from specbench_api.plan.plan import REPEATS_TO_DECIDE, Plan
from specbench_api.spec.chat_template import AppliedBy
from specbench_api.spec.drafter import BASELINE_NAME
from specbench_api.spec.engine import SECRET, EngineKind, flaw_of
from specbench_api.spec.field_paths import replaced
from specbench_api.spec.load import REPEATS_MAX, ArmOrder, ArrivalProcess
from specbench_api.spec.parsing import parse_run
from specbench_api.spec.run import NAME_MAX, SpecBenchRun
from specbench_api.spec.secret_refs import API_KEY_VARIABLE
from specbench_client.cli.options import (
    API_KEY_ENV,
    EXAMPLES,
    KEEP_TEXT,
    NEW,
    OUTPUT,
    PERCENTILES,
    RESULTS,
    RETRIES,
    RETRY_INVALID,
    field_options,
    with_fields,
)
from specbench_client.cli.streams import echo
from specbench_client.dialects.recognition import engine_url, server_address
from specbench_client.errors import BadInput, Interrupted
from specbench_client.known_secrets import api_key_header, keep_headers_secret
from specbench_client.load.machine_limits import (
    RATE_PER_WORKER,
    STREAMS_PER_WORKER,
    WORKERS_PER_CORE,
    usable_cores,
)
from specbench_client.measure_flags import FLAGS, MEASURED_WORKLOAD, with_flag_names
from specbench_client.transport.exchange import reject_reserved_headers
from specbench_client.workload.source_detection import guess_dataset

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


OWN_PROMPTS = str(EXAMPLES / "prompts.jsonl")
"""The prompts without --dataset."""


class MeasureCommand(click.Command):
    """A command that answers flags of other load generators, and lists separated by spaces, with its own."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse as click does. Raises UsageError."""
        try:
            rest = super().parse_args(ctx, list(args))
        except click.NoSuchOption as error:
            ours = FLAGS_ELSEWHERE.get(error.option_name)
            if ours is None:
                raise
            hint = f"No such option {error.option_name!r}. Did you mean {ours!r}?"
            raise click.NoSuchOption(error.option_name, hint, ctx=ctx) from error
        if rest:
            several = ",".join([args[args.index(rest[0]) - 1], *rest])
            ctx.fail(f"unexpected {' '.join(rest)}: separate several values by commas: {several}")
        return rest


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
            begin = re.split(r"[^\w-]", text)[0]  # The rest may be a key.
            raise BadInput(f"--header '{begin}…' is not 'NAME: VALUE': give for example 'X-Tenant: bench'")
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


@click.command(cls=MeasureCommand, context_settings={"allow_extra_args": True})
@click.option(
    "--endpoint",
    required=True,
    multiple=True,
    metavar="[NAME=]URL",
    help="URL of the engine: http://127.0.0.1:8000. With --baseline repeatable; NAME is shown in tables.",
)
@click.option(
    "--baseline", metavar="URL", help="Server to compare with; each repeat measures it and every endpoint once."
)
@field_options(FLAGS)
@click.option(
    "--sweep",
    is_flag=True,
    help="Closed loop: 1, 2, 4, … requests, until the throughput grows by less than 5 % or the goodput falls.",
)
@click.option(
    "--until-sure",
    is_flag=True,
    help="With --baseline: stop as soon as every speed-up is clear, after"
    f" {REPEATS_TO_DECIDE} repeats at the earliest.",
)
@click.option(
    "--restart-command",
    metavar="CMD",
    help="Shell command that restarts a server before each of its repeats, so that intervals include how much launches"
    " differ: 'systemctl restart vllm-$SPECBENCH_ARM'. It gets SPECBENCH_ARM (NAME; the baseline's is none) and"
    " SPECBENCH_ENDPOINT (URL), and returns after the old process has ended, while the new one starts or runs.",
)
@click.option(
    "--header",
    "headers",
    multiple=True,
    metavar="'NAME: VALUE'",
    help="Header of every request; never stored: values of 8 or more characters are removed from what servers answer,"
    " except media types. A server's error that repeats a shorter one is stored as it is. Repeatable.",
)
@API_KEY_ENV
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
@RETRIES
@RETRY_INVALID
@KEEP_TEXT
@PERCENTILES
@OUTPUT
def measure(**options: Any) -> int:
    """Measure a running server, or compare running servers, with real prompts; every request is recorded.

    \b
      specbench simulate --port 8000 --drafter eagle3 &           an engine to try it with
      specbench simulate --port 8001 --drafter none &             and a second one, without a drafter
      specbench measure --endpoint http://127.0.0.1:8000 --baseline http://127.0.0.1:8001 \\
        --concurrency 8                                           the speed-up of one over the other
      specbench measure --endpoint http://127.0.0.1:8000 --dataset prompts.jsonl --concurrency 1,8
      specbench measure … --sweep                                         concurrency 1, 2, 4, … until saturation
      specbench measure … --rate 2,4 --duration 60                        open loop, instead of --concurrency
      specbench measure … --rate 5 --arrival gamma --burstiness 0.25      bursts: gaps with a CV of 2
      specbench measure … --arrival trace --trace arrivals.csv            recorded arrival times
      specbench measure … --slo-ttft-ms 500 --slo-tpot-ms 35              with goodput: requests/s within these limits

    If a run was interrupted, the same command continues it; a finished run is measured again as a new run. The API key
    is read from OPENAI_API_KEY, or from the variable that --api-key-env names.

    With --baseline, each repeat measures every server once, in the opposite order of the repeat before (ABBA), with the
    same prompts and load, so that drift cancels. Without --requests, --requests-per-stream and --duration, a repeat
    takes about six seconds at each load, but has at least four requests per stream, eight at the lightest load. A
    server with a prompt cache needs prompts that it has not seen: each repeat takes the next ones; with --duration,
    repeats begin at places far from each other.

    `specbench run` launches engines itself, each with and without drafters.
    """
    try:
        plan, run_options = planned_measurement(options)
        from specbench_client.cli.run_execution import run_and_print  # noqa: PLC0415  pandas takes seconds to import

        return run_and_print(plan, run_options)
    except BadInput as error:  # may name fields of the spec, for example for an impossible schedule
        raise BadInput(with_flag_names(str(error)), error.reason) from error


def planned_measurement(options: Mapping[str, Any]) -> tuple[Plan, RunOptions]:
    """Return the plan, and the options of its execution. Raises BadInput, EngineFailed."""
    _check_workers(options["workers"], usable_cores())
    if options["dataset"] is None:
        echo("prompts: specbench's own; give --dataset with yours, because they decide the answer", err=True)
        options = {**options, "dataset": OWN_PROMPTS}
    for problem in _contradictions(options):
        raise BadInput(problem)
    wanted = Measurement(options, tuple(_endpoints(options["endpoint"], options["baseline"])))
    # Invalid options are reported before an endpoint is contacted, and before pandas is imported.
    (wanted.with_options(concurrency=[1]) if options["sweep"] else wanted).plan  # noqa: B018
    headers = request_headers(options["headers"], options["api_key_env"])
    keep_headers_secret(headers)
    from specbench_client.cli.measure_probing import choose_what_is_open  # noqa: PLC0415
    from specbench_client.cli.run_execution import RunOptions  # noqa: PLC0415
    from specbench_client.drive.options import ClientOptions  # noqa: PLC0415

    try:
        chosen = choose_what_is_open(wanted, headers)
    except (Interrupted, KeyboardInterrupt) as error:
        raise Interrupted(
            "interrupted before the first point: nothing was measured, earlier results are kept; run the same command"
            " again"
        ) from error
    return chosen.plan, RunOptions(
        base_dir=Path.cwd(),
        results=options["results"],
        output=options["output"],
        client=ClientOptions(options["keep_text"], headers, options["workers"], options["restart_command"]),
        new=options["new"],
        retries=options["retries"],
        retry_invalid=options["retry_invalid"],
        reuse_finished=False,
        statistics=options["percentiles"],
    ).for_spec(chosen.run.spec)


def _check_workers(workers: int | None, cores: int) -> None:
    """Raise BadInput for more workers than the cores can run without delays."""
    limit = WORKERS_PER_CORE * cores
    if workers is not None and workers > limit:
        raise BadInput(
            f"--workers {workers} is too many for the {cores} usable cores of this machine: workers would wait for each"
            f" other, and the wait would count as latency of the engine: give at most {limit}, or leave out --workers"
        )


def _contradictions(options: Mapping[str, Any]) -> Iterator[str]:
    """Yield flags that exclude each other and are no fields of a run, naming both."""
    loads = [name for name in ("concurrency", "rate", "arrival") if options[name]]
    if options["sweep"]:
        yield from (f"--sweep chooses the loads itself: leave out --{each}" for each in loads)
    elif not loads:
        yield "no load: give --concurrency N (closed loop), --rate R (open loop), --arrival trace or --sweep"
    if options["baseline"] is not None:
        repeats = options["repeats"]
        if options["until_sure"] and repeats is not None and repeats < REPEATS_TO_DECIDE:
            least = REPEATS_TO_DECIDE
            yield f"--repeats {repeats} with --until-sure is the maximum: give {least} or more, or leave it out"
        return
    if len(options["endpoint"]) > 1:
        yield "several --endpoint have nothing to be compared with: add --baseline URL, or measure one of them"
    if options["until_sure"]:
        yield "--until-sure stops when a comparison is decided: add --baseline URL, or leave it out"


# The endpoints, as rows of spec.engine.endpoints.


def base_url(flag: str, endpoint: str) -> str:
    """Return the endpoint without the route that OpenAI clients need. Raises BadInput."""
    flaw = flaw_of(endpoint)
    if flaw is not None:
        problem = f"{flaw.problem}: give it with --header 'Authorization: …'" if flaw is SECRET else flaw
        raise BadInput(f"{flag} {_without_keys(endpoint)!r} {problem}")
    return engine_url(endpoint)


def _without_keys(address: str) -> str:
    """Return an address without what may be a key: its user and its query."""
    return re.sub("[?#].+", lambda found: f"{found[0][0]}…", re.sub("//[^/]*@", "//…@", address))


_NAMED = re.compile(r"([a-z0-9]([a-z0-9-]*[a-z0-9])?)=(https?://.*)")
_PREFIXED = re.compile(r"([^/]*)=https?://")
ENDPOINT_NAME = "endpoint"
"""Name of the arm of an endpoint without a name."""


def _endpoints(given: Sequence[str], baseline: str | None) -> Iterator[dict[str, str]]:
    """Yield name and URL of each server. Raises BadInput if two have the same name or address."""
    named: dict[str, str] = {}
    if baseline is not None:
        if _PREFIXED.match(baseline):
            why = f"give the URL alone: its arm is always called {BASELINE_NAME}"
            raise BadInput(f"--baseline {_without_keys(baseline)}: {why}")
        named[BASELINE_NAME] = base_url("--baseline", baseline)
    for number, text in enumerate(given, start=1):
        found = _NAMED.fullmatch(text)
        prefix = _PREFIXED.match(text)
        if prefix and not found:
            why = f"the name {prefix[1]!r} may only have lower-case letters, digits and -"
            raise BadInput(f"--endpoint {_without_keys(text)}: {why}")
        name = found[1] if found else ENDPOINT_NAME if len(given) == 1 else f"{ENDPOINT_NAME}-{number}"
        url = base_url("--endpoint", found[3] if found else text)
        if name in named:
            owner = " by the baseline" if name == BASELINE_NAME else ""
            raise BadInput(f"--endpoint {text}: the name {name} is taken{owner}: give another NAME=URL")
        if server_address(url) in map(server_address, named.values()):
            raise BadInput(f"--endpoint {text}: the same server is given twice: give the URL of another one")
        named[name] = url
    yield from ({"name": name, "url": url} for name, url in named.items())


# The run.

UNUSED_SLOTS = 8
"""A value for the field that the schema requires with a rate; a running endpoint has its own limit."""
_UNDETECTED = "undetected"


@dataclass(frozen=True)
class Measurement:
    """What the options ask for, as a run with one arm per endpoint.

    `endpoints`: rows of spec.engine.endpoints, with dialect and model once they are detected. Without a model, given or
    detected, the plan only shows whether the other options are valid.
    """

    options: Mapping[str, Any]
    endpoints: tuple[dict[str, str], ...]

    def with_options(self, **changed: Any) -> Measurement:
        """Return the same with other values of some options."""
        return replace(self, options={**self.options, **changed})

    @cached_property
    def plan(self) -> Plan:
        """The plan. Raises BadInput with the names of flags."""
        try:
            plan = lay_out(self.run)
        except InvalidSpec as error:
            raise BadInput("\n".join(dict.fromkeys(with_flag_names(str(each)) for each in error.problems))) from error
        stop, restarts = "WhenDecided" if self.options["until_sure"] else None, self.options["restart_command"]
        return plan.model_copy(update={"stop": stop, "restarts": None if restarts is None else True})

    @cached_property
    def run(self) -> SpecBenchRun:
        """The run, checked by the models of the custom resource. Raises InvalidSpec."""
        options, compared = self.options, self.options["baseline"] is not None
        spec: dict[str, Any] = {
            "model": {"name": self.endpoints[-1].get("model", _UNDETECTED)},
            "engine": {"kind": str(EngineKind.EXTERNAL), "endpoints": list(self.endpoints)},
            "workloads": [{"name": MEASURED_WORKLOAD}],
            "load": {
                "repeats": REPEATS_MAX if options["until_sure"] else REPEATS_TO_DECIDE if compared else 1,
                "order": str(ArmOrder.INTERLEAVED if compared else ArmOrder.SEQUENTIAL),
            },
        }
        if options["rate"] or options["arrival"] == ArrivalProcess.TRACE:
            spec["load"] |= {"slots": UNUSED_SLOTS, "arrival": {"seed": options["seed"] or 0}}
        if options["tokenizer"] is not None:
            spec["workloads"][0]["chatTemplate"] = {"appliedBy": str(AppliedBy.CLIENT)}
        spec = with_fields(spec, FLAGS, options)
        try:
            others = {name: value for name, value in spec["workloads"][0]["dataset"].items() if name != "uri"}
            spec = replaced(spec, ("workloads", "0", "dataset"), {**guess_dataset(options["dataset"]), **others})
        except BadInput as error:
            raise BadInput(f"--dataset {error}") from error
        name = run_name(spec["model"]["name"]) if options["name"] is None else options["name"]
        return parse_run(
            {"apiVersion": API_VERSION, "kind": SpecBenchRun.__name__, "metadata": {"name": name}, "spec": spec}
        )


def run_name(model: str) -> str:
    """Derive a valid run name from the model's name."""
    words = re.sub(r"[^a-z0-9]+", "-", model.rpartition("/")[2].lower()).strip("-")
    return (words if re.match(r"[a-z]", words) else f"m-{words}")[:NAME_MAX].strip("-")
