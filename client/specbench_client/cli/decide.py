"""`specbench decide`: which arm, at which load, under which targets, and what it costs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from specbench_api.outcome.recommendation import Objective, Recommendation, SloTarget
from specbench_client.cli.consoles import page
from specbench_client.cli.options import FiniteRange
from specbench_client.cli.pricing import prices_of
from specbench_client.cli.runs import run_store
from specbench_client.local.place import open_results

POSITIVE = FiniteRange(min=0, min_open=True)
_LATENCIES = ("ttft_ms", "tpot_ms", "e2e_ms")


@click.command()
@click.argument("where", metavar="DIR-or-URI")
@click.option(
    "--objective",
    type=click.Choice([str(each) for each in Objective]),
    default=str(Objective.THROUGHPUT),
    show_default=True,
    help="What is to be best; latency: time per output token.",
)
@click.option("--slo-ttft-ms", "ttft_ms", type=POSITIVE, metavar="MS", help="Time to first token: at most.")
@click.option("--slo-tpot-ms", "tpot_ms", type=POSITIVE, metavar="MS", help="Time per output token: at most.")
@click.option("--slo-e2e-ms", "e2e_ms", type=POSITIVE, metavar="MS", help="Time to the last token: at most.")
@click.option(
    "--slo-percentile",
    "percentile",
    type=click.Choice(["p50", "p95", "p99"]),
    default="p95",
    show_default=True,
    help="Of requests, for all three.",
)
@click.option("--load", metavar="LEVEL", help="Choose at this load alone: 8, or 2.5/s.")
@click.option(
    "--worth",
    type=FiniteRange(min=0, max=1000),
    default=5.0,
    show_default=True,
    metavar="PERCENT",
    help="A gain that is shown to be smaller is not worth a drafter.",
)
@click.option(
    "--prices",
    "file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Your price list, YAML; see docs/decide.md. The flags below stand over it.",
)
@click.option("--gpu-price", type=POSITIVE, metavar="AMOUNT", help="One GPU for an hour, whatever its product.")
@click.option("--machine-price", type=POSITIVE, metavar="AMOUNT", help="All that one engine runs on, for an hour.")
@click.option("--gpus", type=click.IntRange(min=1), metavar="N", help="GPUs of one engine, if the run tells none.")
@click.option("--training-cost", "training", multiple=True, metavar="ARM=AMOUNT", help="What a drafter cost once.")
@click.option(
    "--training-gpu-hours", "hours", multiple=True, metavar="ARM=HOURS", help="GPU-hours of it, at --gpu-price each."
)
@click.option(
    "--requests-until-retrain", "retrain", type=click.IntRange(min=1), metavar="N", help="Requests that pay for it."
)
@click.option("--can-train", type=click.Choice(["yes", "no"]), help="no: choose none that must be trained.")
@click.option(
    "--spare-memory-gb",
    type=FiniteRange(min=0),
    metavar="GB",
    help="GPU memory that a drafter may take; 0: choose none that takes any.",
)
@click.option(
    "--target-changes", type=click.Choice(["often", "seldom"]), help="For the decision tree among the rules of thumb."
)
@click.option(
    "--output", "-o", type=click.Choice(["text", "json", "markdown"]), default="text", show_default=True, help="Format."
)
@click.option("--latest", is_flag=True, help="Where a results root holds several runs, the newest.")
def decide(where: str, output: str, *, latest: bool, **given: Any) -> None:
    """Recommend an arm and a load from the run at DIR-or-URI, with the evidence and its limits.

    `No drafter pays` and `it cannot be told` are answers. Prices are yours: none are shipped.

    \b
      specbench decide specbench-results --latest
      specbench decide specbench-results --latest --slo-tpot-ms 35 --slo-ttft-ms 500
      specbench decide specbench-results --latest --objective cost --gpu-price 2.50
      specbench decide specbench-results --latest --can-train no --spare-memory-gb 0
      specbench decide s3://bench/runs/team/llama/3f2c… --objective cost --prices prices.yaml --output markdown
    """
    from specbench_client.analysis.decision.asked import Asked, Constraints, targets_of  # noqa: PLC0415  statistics: seconds of imports
    from specbench_client.analysis.decision.recommend import recommend  # noqa: PLC0415
    from specbench_client.drive.compared import read_answer  # noqa: PLC0415

    plan, summary = read_answer(run_store(open_results(where), where, latest=latest))
    flags = {
        "gpuHour": {"*": given["gpu_price"]} if given["gpu_price"] is not None else None,
        "machineHour": given["machine_price"],
        "gpus": given["gpus"],
        "requestsUntilRetrain": given["retrain"],
    }
    asked = Asked(
        objective=Objective(given["objective"]),
        targets=_targets(given) or targets_of(summary.slo),
        prices=prices_of(given["file"], flags, given["training"], given["hours"]),
        worth=1 + given["worth"] / 100,
        load=given["load"],
        constraints=Constraints(
            can_train=None if given["can_train"] is None else given["can_train"] == "yes",
            spare_memory_gb=given["spare_memory_gb"],
            target_changes=given["target_changes"],
        ),
    )
    _deliver(recommend(plan, summary, asked), output)


def _targets(given: dict[str, Any]) -> tuple[SloTarget, ...]:
    asked = {name: given[name] for name in _LATENCIES if given[name] is not None}
    return tuple(
        SloTarget.model_validate({"metric": name, "percentile": given["percentile"], "limit_ms": limit})
        for name, limit in asked.items()
    )


def _deliver(recommendation: Recommendation, output: str) -> None:
    from specbench_client.report.decision import (  # noqa: PLC0415  as above
        applicable_rows,
        decision_lines,
        decision_markdown,
        decision_sheets,
    )

    if output == "json":
        click.echo(recommendation.to_json(), nl=False)
    elif output == "markdown":
        click.echo(decision_markdown(recommendation), nl=False)
    else:
        console = page()
        console.print(recommendation.sentence)
        for sheet in decision_sheets(recommendation, applicable_rows(recommendation)):
            console.sheet(sheet)
        for line in decision_lines(recommendation):
            console.print(line)
