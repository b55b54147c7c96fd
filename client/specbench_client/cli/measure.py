"""`specbench measure`: the instrument alone, against an endpoint that already runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from specbench_api.spec.engine import DialectName
from specbench_api.spec.load import Arrival, Load, Process
from specbench_api.spec.workload import Output, Sampling
from specbench_client.cli.elsewhere import KnowsOthers
from specbench_client.cli.endpoint_plan import Asked, plan_of
from specbench_client.cli.flags import Number, Numbers, in_flags
from specbench_client.cli.headers import headers_of
from specbench_client.cli.options import DEFAULT_RESULTS, NEW, OUTPUT
from specbench_client.cli.slo import asked_slo, slo_options
from specbench_client.errors import BadInput
from specbench_client.load.cores import most_workers, usable_cores


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
    arm itself, alike but for the drafter, and interleaves it with its baseline. Of two endpoints that run already, one
    without a drafter and one with it, measure each with --results of its own, then: specbench compare WITHOUT WITH
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


def _refuse_crowd(workers: int | None, cores: int) -> None:
    """More workers than the cores can carry. Raises BadInput."""
    most = most_workers(cores)
    if workers is not None and workers > most:
        raise BadInput(
            f"--workers {workers} is more than the {cores} usable cores of this machine can carry: they would wait for"
            f" one another, and that would be timed as the engine's; give at most {most}, or leave --workers out"
        )
