"""`specbench analyze oracle`: how much perfect draft lengths would gain, and the best fixed draft length."""

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
from specbench_client.cli.output import PLOT, print_tables, write_plot
from specbench_client.cli.run_selection import run_at
from specbench_client.errors import BadInput


@click.command()
@click.argument("where", metavar="FILE-or-RUN")
@click.option(
    "--arm",
    metavar="NAME",
    help="The drafter to analyze.  [default: for a run, the longest drafts with accepted drafts per step]",
)
@click.option(
    "--with",
    "second",
    metavar="NAME",
    help="Combine with this second drafter; `ngram-replay` is n-gram drafting, replayed on the texts.",
)
@STEP_COST
@BATCH
@click.option(
    "--drafts",
    "-k",
    type=PositiveIntegers(),
    default="1,2,3,5,7,10",
    show_default=True,
    help="Fixed draft lengths, in tokens, to compare with.",
)
@TOKENIZER
@PROMPTS
@WORKLOAD
@LOAD
@LATEST
@PLOT
@OUTPUT_MARKDOWN
def oracle(
    where: str,
    *,
    arm: str | None,
    second: str | None,
    step_cost: str | None,
    batch: tuple[int, ...],
    drafts: tuple[int, ...],
    tokenizer: str | None,
    prompts: str | None,
    workload: str | None,
    load: str | None,
    latest: bool,
    plot: Path | None,
    output: str,
) -> None:
    """Compute the upper bound of adaptive draft lengths: an oracle drafts only tokens that will be accepted.

    \b
      specbench analyze oracle specbench-results --latest              tokens per step: oracle and fixed lengths
      specbench analyze oracle trace.jsonl --step-cost published-h100 --batch 1,8,32
      specbench analyze oracle specbench-results --latest --with draft-q4      the better of two arms at each step
      specbench analyze oracle trace.jsonl --arm eagle --with ngram-replay    with n-gram, replayed on the texts
      specbench analyze oracle trace.jsonl --step-cost published-h100 --batch 1,8,32 --plot oracle.svg

    RUN is a stored run with an arm of long drafts (numSpeculativeTokens 10 or 20) whose engine reports the accepted
    drafts of each step. FILE is an engine's trace (JSONL) with `prompt_token_ids` and `acc_NAME: {"acc_len": […]}`, the
    tokens that a step emits at each output position.

    Formulas and limits: docs/research/oracle.md.
    """
    from specbench_client.analysis.what_if.oracle import oracle_report  # noqa: PLC0415  scipy takes seconds to import
    from specbench_client.analysis.what_if.policies import Pricing  # noqa: PLC0415
    from specbench_client.dataset.recorded_answers import read_traces, trace_subject  # noqa: PLC0415
    from specbench_client.dataset.tokenizers import load_encoder  # noqa: PLC0415
    from specbench_client.report.text.what_if import oracle_lines, oracle_tables  # noqa: PLC0415
    from specbench_client.stored_runs.records import CellSelection, open_stored_run  # noqa: PLC0415
    from specbench_client.stored_runs.what_if_inputs import (  # noqa: PLC0415
        OracleRequest,
        TextEncoding,
        read_oracle_subject,
    )

    cost = load_cost_model(step_cost)
    if Path(where).is_file():
        subject = trace_subject(read_traces(Path(where)), arm, second, cost)
    else:
        run = open_stored_run(run_at(where, latest=latest), CellSelection(workload, load))
        texts = TextEncoding(load_encoder(tokenizer) if tokenizer else None, Path(prompts) if prompts else None)
        subject = read_oracle_subject(run, OracleRequest(arm, second, texts), cost)
    for each in (subject.main, *([subject.second] if subject.second else [])):
        if not each.single.answers.count:
            raise BadInput(f"{where}: no answer of {each.name} has a step: an answer needs at least two tokens")
    report = oracle_report(subject, drafts, Pricing(batch, cost))
    if plot:
        from specbench_client.report.plots.figures import oracle_speedups  # noqa: PLC0415  matplotlib takes seconds to import

        drawing = oracle_speedups(report)
        if drawing is None:
            raise BadInput(f"--plot {plot}: without a step cost there are no speed-ups to draw: add --step-cost")
        write_plot(plot, f"{report.source}: oracle and fixed draft lengths, by batch size", drawing)
    print_tables(report, oracle_tables(report), oracle_lines(report), output)
