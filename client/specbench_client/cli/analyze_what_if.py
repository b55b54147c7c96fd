"""`specbench analyze oracle` and `ngram`: what other drafting would gain, from recorded answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from specbench_client.analysis.what_if.answers import STEPPED_MIN
from specbench_client.analysis.what_if.ngram import NGRAM, NgramGrid, ngram_report
from specbench_client.analysis.what_if.oracle import oracle_report
from specbench_client.analysis.what_if.policies import PUBLISHED_H100, Pricing
from specbench_client.cli.options import LATEST, OUTPUT_MARKDOWN, read_yaml_file, validated
from specbench_client.cli.output import ProgressConsole, print_report
from specbench_client.cli.run_selection import select_run
from specbench_client.dataset.recorded_answers import read_log, read_traces, trace_subject
from specbench_client.dataset.tokenizers import load_encoder
from specbench_client.documents.what_if import CostModel
from specbench_client.errors import BadInput
from specbench_client.report.text.what_if import ngram_report_text, oracle_report_text
from specbench_client.stored_runs.what_if_inputs import load_of, read_ngram_log, read_oracle_subject

POSITIVE_INTEGER_MAX = 4096


class PositiveIntegers(click.ParamType[tuple[int, ...]]):
    """Comma-separated whole numbers from 1 to `most`, such as `1,8,32`; sorted, without duplicates."""

    name = "N[,N…]"

    def __init__(self, most: int = POSITIVE_INTEGER_MAX) -> None:
        self._most = most

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        """Convert the numbers; the error states the accepted values."""
        if isinstance(value, tuple):
            return value
        words = [word.strip() for word in str(value).split(",")]
        if not all(word.isascii() and word.isdigit() and 1 <= int(word) <= self._most for word in words):
            self.fail(f"{value!r}: give whole numbers from 1 to {self._most}, such as 1,8,32", param, ctx)
        return tuple(sorted({int(word) for word in words}))


STEP_COST = click.option(
    "--step-cost",
    metavar="FILE-or-NAME",
    help=f"Cost model of a step: a YAML file, or {PUBLISHED_H100.name}. Needed for speed-ups.",
)
BATCH = click.option(
    "--batch",
    type=PositiveIntegers(),
    default="1,8,32",
    show_default=True,
    help="Batch sizes (concurrent requests) to compute speed-ups for.",
)
TOKENIZER = click.option(
    "--tokenizer",
    metavar="PATH-or-NAME",
    help="Tokenizer that turns texts into token ids: the target's tokenizer.json, its folder, or o200k_base (an"
    " estimate).",
)
PROMPTS = click.option(
    "--prompts",
    type=click.Path(exists=True, dir_okay=False),
    help="For a run: its prompts file, if it has moved since.",
)
WORKLOAD = click.option("--workload", metavar="NAME", help="For a run: which workload.  [default: the first]")
LOAD = click.option(
    "--load", metavar="LEVEL", help="For a run: which load, as shown in tables: 8, or 2.5/s.  [default: the lowest]"
)


def load_cost_model(file_or_name: str | None) -> CostModel | None:
    """Return the cost model that --step-cost names; None without the option. Raises BadInput, InvalidSpec."""
    if file_or_name is None:
        return None
    if file_or_name == PUBLISHED_H100.name:
        return PUBLISHED_H100
    data = read_yaml_file(Path(file_or_name), f"give a file with a cost model, or {PUBLISHED_H100.name}")
    return validated(CostModel, data, file_or_name)


@click.command()
@click.argument("where", metavar="FILE-or-RUN")
@click.option(
    "--arm",
    metavar="NAME",
    help="The drafter to analyze.  [default: for a run, the longest drafts with accepted drafts per step]",
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
@WORKLOAD
@LOAD
@LATEST
@OUTPUT_MARKDOWN
def oracle(
    where: str,
    *,
    arm: str | None,
    step_cost: str | None,
    batch: tuple[int, ...],
    drafts: tuple[int, ...],
    workload: str | None,
    load: str | None,
    latest: bool,
    output: str,
) -> None:
    """Compute the upper bound of adaptive draft lengths: an oracle drafts only tokens that will be accepted.

    \b
      specbench analyze oracle specbench-results --latest              tokens per step: oracle and fixed lengths
      specbench analyze oracle trace.jsonl --step-cost published-h100 --batch 1,8,32
      specbench analyze oracle trace.jsonl --arm eagle

    RUN is a stored run with an arm of long drafts (numSpeculativeTokens 10 or 20) whose engine reports the accepted
    drafts of each step. FILE is an engine's trace (JSONL) with `prompt_token_ids` and `acc_NAME: {"acc_len": […]}`, the
    tokens that a step emits at each output position.

    Formulas: docs, "Oracle".
    """
    cost = load_cost_model(step_cost)
    if Path(where).is_file():
        subject = trace_subject(read_traces(Path(where)), arm, cost)
    else:
        subject = read_oracle_subject(load_of(select_run(where, latest=latest), workload, load), arm, cost)
    if not subject.single.answers.count:
        raise BadInput(f"{where}: no answer of {subject.drafter} has a step: an answer needs at least two tokens")
    report = oracle_report(subject, drafts, Pricing(batch, cost))
    print_report(output, report, oracle_report_text(report))


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

    Limits: docs, "N-gram replay".
    """
    grid = NgramGrid(min_n, max_n, drafts)
    if not grid.lookups:
        raise BadInput(
            f"--min-n {min(min_n)} is longer than every --max-n: give at least one --max-n of {min(min_n)} or more"
        )
    cost = load_cost_model(step_cost)
    if cost and NGRAM not in cost.drafters:
        raise BadInput(f"--step-cost {step_cost}: has no drafter {NGRAM!r}: add it to drafters; {{}} costs nothing")
    encoder = load_encoder(tokenizer) if tokenizer else None
    if Path(where).is_file():
        log = read_log(Path(where), encoder, outputs)
    else:
        file = Path(prompts) if prompts else None
        run = load_of(select_run(where, latest=latest), workload, load, encoder=encoder, prompts=file)
        log = read_ngram_log(run, arm)
    if all(each.output.size < STEPPED_MIN for each in log.answers):
        raise BadInput(f"{where}: no answer has a step to replay: an answer needs at least {STEPPED_MIN} tokens")
    console = ProgressConsole()
    with console.status("replaying") as status:
        report = ngram_report(
            log,
            grid,
            Pricing(batch, cost),
            lambda done, total: status.update(f"replaying: {done} of {total} lookups"),
        )
    print_report(output, report, ngram_report_text(report))
