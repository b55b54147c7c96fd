"""`specbench analyze ngram`: replay n-gram drafting over recorded answers, without an engine."""

from __future__ import annotations

from pathlib import Path

import click

from specbench_client.cli.options import (
    BATCH,
    LATEST,
    LOAD,
    OUTPUT_MARKDOWN,
    PROMPTS,
    STEP_COST,
    TOKENIZER,
    WORKLOAD,
    PositiveIntegers,
    load_cost_model,
)
from specbench_client.cli.output import ProgressConsole, print_tables
from specbench_client.cli.run_selection import select_run
from specbench_client.errors import BadInput


@click.command()
@click.argument("where", metavar="FILE-or-RUN")
@TOKENIZER
@click.option(
    "--drafts",
    "-k",
    type=PositiveIntegers(),
    default="3,5,10",
    show_default=True,
    help="Largest numbers of draft tokens per step.",
)
@click.option(
    "--min-n",
    type=PositiveIntegers(),
    default="3",
    show_default=True,
    help="Shortest suffixes that are looked up, in tokens.",
)
@click.option(
    "--max-n",
    type=PositiveIntegers(),
    default="7",
    show_default=True,
    help="Longest suffixes that are looked up, in tokens.",
)
@STEP_COST
@BATCH
@click.option(
    "--outputs",
    metavar="COLUMN",
    help="For a file: the column with the outputs.  [default: output, outputs, response, reference]",
)
@click.option("--arm", metavar="NAME", help="For a run: whose answers to replay.  [default: the baseline's]")
@WORKLOAD
@LOAD
@PROMPTS
@LATEST
@OUTPUT_MARKDOWN
def ngram(
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
    output: str,
) -> None:
    """Replay n-gram drafting (prompt lookup) over recorded prompts and answers, to see whether it would help.

    \b
      specbench analyze ngram answers.jsonl                                           exact: the file has token ids
      specbench analyze ngram logs.jsonl --tokenizer /models/Llama-3.1-8B-Instruct    texts, with the target's tokenizer
      specbench analyze ngram answers.jsonl -k 3,5,10 --min-n 2,3 --max-n 4,7         every combination
      specbench analyze ngram answers.jsonl --step-cost published-h100 --batch 1,32   with the speed-up that follows
      specbench analyze ngram specbench-results --latest --tokenizer /models/Llama-3.1-8B-Instruct

    FILE contains one answer per row (JSONL, Parquet, CSV): `prompt_token_ids` and `output_token_ids`, or `prompt` (or
    `messages`) and `output` with --tokenizer; optionally `id` and `category`. RUN is a stored run that was measured
    with --keep-text.

    What the replay shows, and what it does not: docs/research/ngram.md.
    """
    from specbench_client.analysis.what_if.answers import STEPPED_MIN  # noqa: PLC0415  scipy takes seconds to import
    from specbench_client.analysis.what_if.ngram import NGRAM, NgramGrid, ngram_report  # noqa: PLC0415
    from specbench_client.analysis.what_if.policies import Pricing  # noqa: PLC0415
    from specbench_client.dataset.recorded_answers import read_log  # noqa: PLC0415
    from specbench_client.dataset.tokenizers import load_encoder  # noqa: PLC0415
    from specbench_client.report.text.what_if import ngram_lines, ngram_tables  # noqa: PLC0415
    from specbench_client.stored_runs.what_if_inputs import (  # noqa: PLC0415
        load_of,
        pairs_with_baseline,
        read_ngram_log,
    )

    grid = NgramGrid(min_n, max_n, drafts)
    if not grid.lookups:
        raise BadInput(
            f"--min-n {min(min_n)} is longer than every --max-n: give at least one --max-n of {min(min_n)} or more"
        )
    cost = load_cost_model(step_cost)
    if cost and NGRAM not in cost.drafters:
        raise BadInput(f"--step-cost {step_cost}: has no drafter {NGRAM!r}: add it to drafters; {{}} costs nothing")
    encoder = load_encoder(tokenizer) if tokenizer else None
    pairs = None
    if Path(where).is_file():
        log = read_log(Path(where), encoder, outputs)
    else:
        file = Path(prompts) if prompts else None
        run = load_of(select_run(where, latest=latest), workload, load, encoder=encoder, prompts=file)
        log = read_ngram_log(run, arm)
        pairs = pairs_with_baseline(run)
    if all(each.output.size < STEPPED_MIN for each in log.answers):
        raise BadInput(f"{where}: no answer has a step to replay: an answer needs at least {STEPPED_MIN} tokens")
    console = ProgressConsole()
    with console.status("replaying") as status:
        report = ngram_report(
            log,
            grid,
            Pricing(batch, cost),
            lambda done, total: status.update(f"replaying: {done} of {total} lookups"),
            pairs,
        )
    print_tables(report, ngram_tables(report), ngram_lines(report), output)
