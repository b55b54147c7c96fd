"""`specbench decide`: which arm, at which load, given latency limits and prices."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from specbench_api.api_model import in_words
from specbench_api.outcome.exit_codes import Exit
from specbench_api.spec.latency_percentiles import PERCENTILES
from specbench_api.spec.search import WORTH_PERCENT
from specbench_client.analysis.decision.deployment import deployment_of
from specbench_client.analysis.decision.recommendation import recommend
from specbench_client.analysis.decision.request import Prices, RecommendationRequest, targets_of
from specbench_client.cli.options import (
    LATEST,
    OUTPUT_MARKDOWN,
    override_slo,
    read_yaml_file,
    slo_from_options,
    slo_options,
    validated,
)
from specbench_client.cli.output import print_report
from specbench_client.cli.run_selection import select_run
from specbench_client.cli.streams import echo
from specbench_client.cli.value_types import POSITIVE, Choice, FiniteRange
from specbench_client.documents.recommendation import Objective, RecommendationAnswer
from specbench_client.documents.summary import RunSummary
from specbench_client.errors import EvidenceInsufficient
from specbench_client.report.text.decision import decision_report
from specbench_client.report.text.deployment import deployment_text

_PRICES = "write a price list, such as gpuHour: {NVIDIA-H100-80GB-HBM3: 2.5}"


def prices_from_options(file: Path | None, flags: Mapping[str, Any]) -> Prices | None:
    """Return the prices from a file, overridden by flags; None if no price was given. Raises InvalidSpec.

    `flags`: fields of `Prices` by their names in YAML, None if not given.
    """
    prices = read_yaml_file(file, _PRICES) if file else {}
    prices |= {name: value for name, value in flags.items() if value is not None}
    return validated(Prices, prices, str(file or "prices")) if prices else None


@click.command()
@click.argument("where", metavar="DIR-or-URI")
@click.option(
    "--objective",
    type=Choice([in_words(each) for each in Objective]),
    default=in_words(Objective.THROUGHPUT),
    show_default=True,
    help="What to optimize; latency is the time per output token.",
)
@slo_options
@click.option(
    "--slo-percentile",
    "percentile",
    type=Choice(PERCENTILES),
    help="The percentile of requests that latency limits apply to.  [default: that of the run's limits, or p95]",
)
@click.option("--load", metavar="LEVEL", help="Consider only this load, as shown in tables: 8, or 2.5/s.")
@click.option(
    "--worth",
    type=FiniteRange(min=0, max=1000),
    default=WORTH_PERCENT,
    show_default=True,
    metavar="PERCENT",
    help="Smallest gain, in percent, that justifies a drafter.",
)
@click.option(
    "--prices",
    "file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help='Your price list, YAML; see docs, "Choose an arm and a load". The flags below override it.',
)
@click.option("--gpu-price", type=POSITIVE, metavar="AMOUNT", help="Price of one GPU-hour, for every GPU model.")
@click.option("--machine-price", type=POSITIVE, metavar="AMOUNT", help="Price per hour of all hardware of one engine.")
@click.option(
    "--gpus", type=click.IntRange(min=1), metavar="N", help="GPUs of one engine, if the run did not record them."
)
@click.option("--can-train", type=Choice(["yes", "no"]), help="no: exclude drafters that need training.")
@click.option(
    "--spare-memory-gb",
    type=FiniteRange(min=0),
    metavar="GB",
    help="GPU memory available to a drafter, in GB; 0 excludes drafters that need any.",
)
@click.option(
    "--emit",
    is_flag=True,
    help="Print the recommended drafter's settings for its engine, with the evidence as comments.",
)
@click.option(
    "--workload", metavar="NAME", help="With --emit: deploy for this workload.  [default: all, if they agree]"
)
@OUTPUT_MARKDOWN
@LATEST
def decide(where: str, workload: str | None, output: str, *, emit: bool, latest: bool, **options: Any) -> int:
    """Recommend an arm and a load from a stored run, with the evidence and its limits.

    \b
      specbench decide specbench-results --latest
      specbench decide specbench-results --latest --slo-tpot-ms 35 --slo-ttft-ms 500
      specbench decide specbench-results --latest --objective cost --gpu-price 2.50
      specbench decide specbench-results --latest --can-train no --spare-memory-gb 0
      specbench decide s3://bench/runs/team/llama/3f2c… --objective cost --prices prices.yaml --output markdown
      specbench decide specbench-results --latest --emit

    "No drafter pays" is an answer too. The exit code is 3 if the answer is inconclusive, the run is not trustworthy, an
    arm is at fault, or with --emit nothing is to be deployed. specbench contains no prices: give your own.
    """
    _check_usage(workload, emit=emit)
    run = select_run(where, latest=latest, ended=True).require_summary()
    plan, summary = run.plan, run.summary
    if not summary.points_measured:
        raise EvidenceInsufficient(f"no point of {run.uri} was measured, so there is nothing to decide: measure again")
    recommendation = recommend(plan, summary, request_from_options(summary, options))
    if not emit:
        print_report(output, recommendation, decision_report(recommendation))
        decided = all(each.answer is not RecommendationAnswer.INCONCLUSIVE for each in recommendation.choices)
        return Exit.OK if decided and summary.is_sound else Exit.UNTRUSTWORTHY
    deployment = deployment_of(plan, summary, recommendation, workload)
    echo(deployment_text(deployment, _command(run.uri)).rstrip("\n"))
    return Exit.OK


def request_from_options(summary: RunSummary, options: Mapping[str, Any]) -> RecommendationRequest:
    """Return what the options of the command ask about a run. Raises InvalidSpec."""
    prices = {
        "gpuHour": {"*": options["gpu_price"]} if options["gpu_price"] is not None else None,
        "machineHour": options["machine_price"],
        "gpus": options["gpus"],
    }
    return RecommendationRequest(
        objective=next(each for each in Objective if in_words(each) == options["objective"]),
        targets=targets_of(override_slo(summary.slo, slo_from_options(options)), options["percentile"]),
        prices=prices_from_options(options["file"], prices),
        worth=1 + options["worth"] / 100,
        load=options["load"],
        can_train=None if options["can_train"] is None else options["can_train"] == "yes",
        spare_memory_gb=options["spare_memory_gb"],
    )


def _check_usage(workload: str | None, *, emit: bool) -> None:
    if not emit and workload is not None:
        raise click.UsageError("--workload chooses what is deployed: add --emit, or remove it")
    if emit and click.get_current_context().get_parameter_source("output") is ParameterSource.COMMANDLINE:
        raise click.UsageError("--emit has its own format: remove --output")


def _command(uri: str) -> str:
    """Return the command line of --emit with the options that were given, and the run itself in place of --latest."""
    context, words = click.get_current_context(), ["specbench", "decide", uri]
    for option in context.command.params:
        name = option.name or ""
        given = context.get_parameter_source(name) is ParameterSource.COMMANDLINE
        if not given or isinstance(option, click.Argument) or name in ("latest", "emit"):
            continue
        value = context.params[name]
        for each in value if option.multiple else [value]:
            words += [option.opts[0], f"{each:.12g}" if isinstance(each, float) else str(each)]
    return shlex.join([*words, "--emit"])
