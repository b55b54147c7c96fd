"""`specbench dataset prepare`: adjust prompts to a length, or resolve SPEED-Bench's placeholders."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import click

from specbench_api.api_model import ApiModel
from specbench_api.outcome.termination import Exit
from specbench_api.spec.workload import Source
from specbench_client.cli.dataset_options import SOURCE, progress_bar
from specbench_client.cli.options import OUTPUT
from specbench_client.cli.output import print_output
from specbench_client.cli.streams import echo_document
from specbench_client.dataset.length_control import (
    TEMPLATE,
    ContextColumns,
    LengthReport,
    LengthRequest,
    TargetTokenizer,
    adjust_lengths,
)
from specbench_client.dataset.prompt_entries import read_prompt_rows, write_rows
from specbench_client.dataset.speed_bench_preparation import (
    CONFIGS,
    PreparationReport,
    prepare_config,
    read_speed_bench,
)
from specbench_client.dataset.speed_bench_texts import SpeedBenchRow, UpstreamTables
from specbench_client.dataset.tokenizers import load_reference_tokenizer, load_target_tokenizer
from specbench_client.visible_text import visible


def _tokens(_context: click.Context, _option: click.Parameter, value: str | None) -> int | None:
    """Parse a number of tokens; 8k is 8,000, as in SPEED-Bench."""
    if value is None:
        return None
    found = re.fullmatch(r"([1-9]\d{0,6})(k?)", value)
    if not found:
        raise click.BadParameter(f"{value!r} is not a number of tokens: give for example 8000 or 8k")
    return int(found[1]) * (1000 if found[2] else 1)


SPEED_BENCH = "speed-bench"
_FOLDER = click.Path(exists=True, path_type=Path)
_FILE = click.Path(path_type=Path)


@click.command("prepare")
@click.argument("what", metavar="FILE|speed-bench")
@click.option("--isl", callback=_tokens, help="Length of each prompt in tokens (input sequence length); 8k is 8000.")
@click.option(
    "--template",
    default=TEMPLATE,
    help="Template that joins context and instruction.  [default: context, then instruction]",
)
@click.option(
    "--marks", nargs=2, metavar="BEGIN END", help="Strings around the context within the prompt; they are kept."
)
@click.option("--table", type=_FILE, help="The file o200k_base.tiktoken, if tiktoken's cache does not have it.")
@click.option("--tokenizer", type=_FILE, help="The target's tokenizer.json, to count its tokens too.")
@click.option("--allow-fewer", is_flag=True, help="Leave out rows that cannot reach the length, instead of failing.")
@SOURCE
@click.option("--config", type=click.Choice(CONFIGS), help="For speed-bench: the configuration.")
@click.option("--from", "where", type=_FOLDER, help="For speed-bench: the downloaded folder.  [default: the hub]")
@click.option("--revision", help="For speed-bench: the revision on the hub.")
@click.option("--sources", type=_FOLDER, help="For speed-bench: folder with the source datasets.  [default: the hub]")
@click.option("--to", type=_FILE, required=True, help="Output file, JSONL; for speed-bench: a folder.")
@OUTPUT
def dataset_prepare(
    what: str,
    *,
    isl: int | None,
    template: str,
    marks: tuple[str, str] | None,
    table: Path | None,
    tokenizer: Path | None,
    allow_fewer: bool,
    source: Source | None,
    config: str | None,
    where: Path | None,
    revision: str | None,
    sources: Path | None,
    to: Path,
    output: str,
) -> int:
    """Adjust the prompts of FILE to a length in tokens, or resolve the placeholders of SPEED-Bench.

    \b
      specbench dataset prepare documents.jsonl --isl 8k --to prompts-8k.jsonl
      specbench dataset prepare traffic.jsonl --isl 2k --marks '<document>' '</document>' --to prompts-2k.jsonl
      specbench dataset prepare speed-bench --config qualitative --from SPEED-Bench --to prepared

    Lengths are in tokens of o200k_base; instructions are never cut. A row of FILE has the columns context and
    instruction, or a prompt with marks around its context. A context that is too long loses its end; one that is too
    short is filled up with contexts of other rows of its category.

    SPEED-Bench: resolved rows are stored, so an interrupted command can be repeated. Rows that cannot be resolved are
    listed and keep their placeholder; the exit code is then 3.
    """
    file_options = {"--isl": isl, "--marks": marks, "--allow-fewer": allow_fewer}
    speed_bench_options = {"--config": config, "--from": where, "--revision": revision, "--sources": sources}
    _reject(file_options if what == SPEED_BENCH else speed_bench_options, what)
    if what == SPEED_BENCH:
        if config is None:
            raise click.UsageError(f"prepare speed-bench needs --config: one of {', '.join(CONFIGS)}")
        return _speed_bench(
            read_speed_bench(config, where, revision), config, UpstreamTables(sources, table), to, output
        )
    if isl is None:
        raise click.UsageError("prepare FILE needs --isl, the length of each prompt in tokens: for example --isl 8k")
    request = LengthRequest(isl, ContextColumns(template, marks or None), allow_fewer)
    reference = load_reference_tokenizer(table)
    target = TargetTokenizer(*load_target_tokenizer(tokenizer)) if tokenizer else None
    rows, _ = read_prompt_rows(Path(what), source)
    written, report = adjust_lengths(rows, request, reference, target)
    write_rows(to, written)
    _print(report, _length_text(report, to), output)
    return Exit.OK


def _reject(options: Mapping[str, object], what: str) -> None:
    """Raise UsageError if one of these options was given: they do not apply to what is prepared."""
    given = [name for name, value in options.items() if value]
    if given:
        raise click.UsageError(f"{given[0]} does not apply to {what}: leave it out")


def _speed_bench(rows: list[SpeedBenchRow], config: str, upstream: UpstreamTables, to: Path, output: str) -> int:
    with progress_bar("preparing") as update:
        report = prepare_config(rows, config, to, upstream, update)
    _print(report, _speed_bench_text(report), output)
    return Exit.OK if report.complete else Exit.UNTRUSTWORTHY


def _print(report: ApiModel, text: str, output: str) -> None:
    print_output(output, report, text=lambda _: echo_document(visible(text)))


def _speed_bench_text(report: PreparationReport) -> str:
    usable = sum(one.usable for one in report.coverage)
    lines = [
        f"{report.config}: {usable:,} of {report.rows:,} prompts are complete",
        f"{report.whole:,} had no placeholder, {report.resolved:,} resolved now, {report.kept:,} resolved earlier",
    ]
    lines += [f"  {one.category}: {one.usable:,} of {one.rows:,}" for one in report.coverage if one.usable < one.rows]
    lines += [f"unresolved: {gap.rows:,} of {gap.source} ({', '.join(gap.first)} …): {gap.why}" for gap in report.gaps]
    return "\n".join([*lines, f"written: {report.file}", ""])


def _length_text(report: LengthReport, to: Path) -> str:
    assert report.tokens is not None
    lines = [
        f"{report.written:,} of {report.rows:,} prompts of {report.target:,} tokens (o200k_base)",
        f"{report.exact:,} exact, shortest {report.tokens.least:,.0f}; {report.cut:,} cut, {report.filled:,} filled up",
    ]
    if report.target_tokenizer:
        target = report.target_tokenizer
        lines.append(f"in the target's tokenizer: p50 {target.p50:,.0f}, p99 {target.p99:,.0f}, max {target.most:,.0f}")
    lines += [f"left out: {one.id}: {one.why}" for one in report.left_out]
    return "\n".join([*lines, f"written: {to}", ""])
