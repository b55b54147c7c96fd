"""`specbench replay`: would an n-gram drafter help? From texts that are there already, without a server."""

from __future__ import annotations

from pathlib import Path

import click

from specbench_client.cli.consoles import Ticker
from specbench_client.cli.plots import PLOT, write_plot
from specbench_client.cli.runs import stored_run
from specbench_client.cli.sheets import FORMAT, print_sheets
from specbench_client.cli.step_costs import BATCH, STEP_COST, Counts, cost_model
from specbench_client.errors import BadInput

TOKENIZER = click.option(
    "--tokenizer",
    metavar="PATH-or-NAME",
    help="Makes token ids of texts: the target's tokenizer.json or its folder; o200k_base for an estimate.",
)
PROMPTS = click.option(
    "--prompts", type=click.Path(exists=True, dir_okay=False), help="Of a run: its prompts, if they lie elsewhere now."
)
LATEST = click.option("--latest", is_flag=True, help="Where a results root holds several runs, the newest.")
WORKLOAD = click.option("--workload", metavar="NAME", help="Of a run: which workload.  [default: the first]")
LOAD = click.option("--load", metavar="LEVEL", help="Of a run: which load.  [default: the lowest]")


@click.command()
@click.argument("where", metavar="FILE-or-RUN")
@TOKENIZER
@click.option(
    "--drafts", "-k", type=Counts(), default="3,5,10", show_default=True, help="Draft tokens a step, at most."
)
@click.option("--min-n", type=Counts(), default="3", show_default=True, help="Shortest suffix that is looked up.")
@click.option("--max-n", type=Counts(), default="7", show_default=True, help="Longest suffix that is looked up.")
@STEP_COST
@BATCH
@click.option(
    "--outputs", metavar="COLUMN", help="Of a file: the outputs.  [default: output, outputs, response, reference]"
)
@click.option("--arm", metavar="NAME", help="Of a run: whose answers.  [default: the baseline's]")
@WORKLOAD
@LOAD
@PROMPTS
@LATEST
@PLOT
@FORMAT
def replay(
    where: str,
    *,
    tokenizer: str | None,
    drafts: tuple[int, ...],
    min_n: tuple[int, ...],
    max_n: tuple[int, ...],
    step_cost: str | None,
    batch: tuple[int, ...],
    outputs: str | None,
    arm: str | None,
    workload: str | None,
    load: str | None,
    prompts: str | None,
    latest: bool,
    plot: Path | None,
    output: str,
) -> None:
    """Replay n-gram drafting (prompt lookup) over prompts and outputs that are there already.

    FILE holds one answer a row (JSONL, Parquet, CSV): `prompt_token_ids` and `output_token_ids`, or `prompt` (or
    `messages`) and `output` with --tokenizer; `id` and `category` where there are some. RUN is a stored run whose
    answers were kept (--keep-text).

    \b
      specbench replay answers.jsonl                                           exact: the file has token ids
      specbench replay logs.jsonl --tokenizer /models/Llama-3.1-8B-Instruct    texts, by the target's tokenizer
      specbench replay answers.jsonl -k 3,5,10 --min-n 2,3 --max-n 4,7         every combination
      specbench replay answers.jsonl --step-cost published-h100 --batch 1,32   and what it would be worth there
      specbench replay specbench-results --latest --tokenizer /models/Llama-3.1-8B-Instruct
      specbench replay specbench-results --latest --plot overlap.html          every arm's speed-up by overlap

    What it finds, and what not: docs/replay.md.
    """
    from specbench_client.analysis.oracle.policies import Pricing  # noqa: PLC0415  statistics: seconds of imports
    from specbench_client.analysis.oracle.told import STEPPED_MIN  # noqa: PLC0415
    from specbench_client.analysis.replay.report import NGRAM, Knobs, replay_report  # noqa: PLC0415
    from specbench_client.analysis.replay.rule import Where, overlap_rule  # noqa: PLC0415
    from specbench_client.dataset.length.ruler import load_encoder  # noqa: PLC0415
    from specbench_client.dataset.logs.answers import read_log  # noqa: PLC0415
    from specbench_client.drive.answered import Chosen, read_answered  # noqa: PLC0415
    from specbench_client.drive.logged import Texts, run_log  # noqa: PLC0415
    from specbench_client.drive.paired import pairs_of  # noqa: PLC0415
    from specbench_client.report.replay import replay_lines, replay_sheets  # noqa: PLC0415

    knobs = Knobs(min_n, max_n, drafts)
    if not knobs.lookups:
        raise BadInput(f"--min-n {min(min_n)} is longer than every --max-n: give at least one pair that is not")
    cost = cost_model(step_cost)
    if cost and NGRAM not in cost.drafters:
        raise BadInput(f"--step-cost {step_cost}: knows no drafter {NGRAM!r}: add it to drafters; {{}} costs nothing")
    encoder = load_encoder(tokenizer) if tokenizer else None
    pairs, run = None, None
    if Path(where).is_file():
        log = read_log(Path(where), encoder, outputs)
    else:
        run = read_answered(stored_run(where, latest=latest), Chosen(workload, load))
        log = run_log(run, arm, Texts(encoder, Path(prompts) if prompts else None))
        pairs = pairs_of(run)
    if all(each.output.size < STEPPED_MIN for each in log.answers):
        raise BadInput(f"{where}: no answer has a step to replay: they need {STEPPED_MIN} tokens or more each")
    console = Ticker(stderr=True)
    with console.status("replaying") as status:
        report = replay_report(
            log,
            knobs,
            Pricing(batch, cost),
            lambda done, of: status.update(f"replaying: {done} of {of} look-ups"),
            pairs,
        )
    if run is not None:
        methods = {each.name: each.drafter.method for each in run.plan.arms if each.drafter}
        rule = overlap_rule(report.by_overlap, methods, Where(run.workload, run.load))
        report = report.model_copy(update={"rule": rule})
    if plot:
        from specbench_client.report.plots.overlap_picture import overlap_picture  # noqa: PLC0415  as is matplotlib

        write_plot(plot, overlap_picture(report), "no answer has four tokens, of which an overlap could be told")
    print_sheets(report, replay_sheets(report), replay_lines(report), output)
