"""`specbench dataset prepare`: prompts of one's own brought to a length, SPEED-Bench's placeholders filled in."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import click

from specbench_api.outcome.ending import Exit
from specbench_api.spec.workload import Source
from specbench_client.cli.embedding import SOURCE, ticking
from specbench_client.cli.options import OUTPUT
from specbench_client.dataset.bringing import Ask as LengthAsk
from specbench_client.dataset.bringing import LengthReport, Tokenizer, bring
from specbench_client.dataset.entries import rows_of, write_rows
from specbench_client.dataset.length.parts import TEMPLATE, Told
from specbench_client.dataset.length.ruler import load_ruler, load_tokenizer
from specbench_client.dataset.speed_bench.origins import Origins
from specbench_client.dataset.speed_bench.preparing import CONFIGS, PreparationReport, prepare, read_speed_bench
from specbench_client.dataset.speed_bench.row import SpeedBenchRow


def _tokens(_context: click.Context, _option: click.Parameter, value: str | None) -> int | None:
    """A number of tokens; 8k is 8,000, as SPEED-Bench counts."""
    if value is None:
        return None
    found = re.fullmatch(r"([1-9]\d{0,6})(k?)", value)
    if not found:
        raise click.BadParameter(f"{value!r} is no number of tokens: give 8000 or 8k")
    return int(found[1]) * (1000 if found[2] else 1)


SPEED_BENCH = "speed-bench"
_FOLDER = click.Path(exists=True, path_type=Path)
_FILE = click.Path(path_type=Path)


@click.command("prepare")
@click.argument("what", metavar="FILE|speed-bench")
@click.option("--isl", callback=_tokens, help="Tokens of each prompt (input sequence length); 8k is 8000.")
@click.option(
    "--template", default=TEMPLATE, help="How context and instruction are joined. [default: one after the other]"
)
@click.option(
    "--marks", nargs=2, metavar="BEGIN END", help="The context stands between these in the prompt; they stay."
)
@click.option("--speed-bench-way", is_flag=True, help="Cut or pad the end of the prompt, as SPEED-Bench does itself.")
@click.option("--table", type=_FILE, help="o200k_base.tiktoken, where tiktoken's cache has none.")
@click.option("--tokenizer", type=_FILE, help="The target's tokenizer.json: its lengths beside ours.")
@click.option("--allow-fewer", is_flag=True, help="Leave out rows that cannot be brought to the length.")
@SOURCE
@click.option("--config", type=click.Choice(CONFIGS), help="speed-bench: which part of it.")
@click.option("--from", "where", type=_FOLDER, help="speed-bench: where it was downloaded to. [default: the hub]")
@click.option("--revision", help="speed-bench: its revision on the hub.")
@click.option("--sources", type=_FOLDER, help="speed-bench: folder with the source data sets. [default: the hub]")
@click.option("--to", type=_FILE, required=True, help="The prompts, JSONL; for speed-bench: a folder.")
@OUTPUT
def dataset_prepare(
    what: str,
    *,
    isl: int | None,
    template: str,
    marks: tuple[str, str] | None,
    speed_bench_way: bool,
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
    """Bring prompts to a length in tokens of o200k_base, instructions whole; or fill in SPEED-Bench's placeholders.

    \b
      specbench dataset prepare documents.jsonl --isl 8k --to prompts-8k.jsonl
      specbench dataset prepare traffic.jsonl --isl 2k --marks '<document>' '</document>' --to prompts-2k.jsonl
      specbench dataset prepare speed-bench --config qualitative --from SPEED-Bench --to prepared

    A row of FILE has the columns context and instruction, or a prompt with marks around its context. A long context
    loses its end; a short one is followed by the contexts of other rows of its category.

    SPEED-Bench: what is resolved is kept, so that a call that was stopped goes on. Rows that could not be resolved are
    named and keep their placeholder; the command then ends with 3.
    """
    own_options = {"--isl": isl, "--marks": marks, "--speed-bench-way": speed_bench_way, "--allow-fewer": allow_fewer}
    its_options = {"--config": config, "--from": where, "--revision": revision, "--sources": sources}
    _refuse(own_options if what == SPEED_BENCH else its_options, what)
    if what == SPEED_BENCH:
        if config is None:
            raise click.UsageError(f"prepare speed-bench needs --config: one of {', '.join(CONFIGS)}")
        return _speed_bench(read_speed_bench(config, where, revision), config, Origins(sources, table), to, output)
    if isl is None:
        raise click.UsageError("prepare FILE needs --isl: the tokens of each prompt, such as 8k")
    asked = LengthAsk(isl, Told(template, marks or None), speed_bench_way, allow_fewer)
    ruler = load_ruler(table)
    own = Tokenizer(*load_tokenizer(tokenizer)) if tokenizer else None
    rows, _ = rows_of(Path(what), source)
    written, report = bring(rows, asked, ruler, own)
    write_rows(to, written)
    click.echo(report.to_json() if output == "json" else _said(report, to), nl=False)
    return Exit.OK


def _refuse(options: Mapping[str, object], what: str) -> None:
    """Of what is to be prepared, these options say nothing: whoever gave one meant something else."""
    given = [name for name, value in options.items() if value]
    if given:
        raise click.UsageError(f"{given[0]} says nothing of {what}: leave it out")


def _speed_bench(rows: list[SpeedBenchRow], config: str, origins: Origins, to: Path, output: str) -> int:
    with ticking("preparing") as told:
        report = prepare(rows, config, to, origins, told)
    click.echo(report.to_json() if output == "json" else _prepared(report), nl=False)
    return Exit.OK if report.complete else Exit.UNTRUSTWORTHY


def _prepared(report: PreparationReport) -> str:
    usable = sum(one.usable for one in report.coverage)
    lines = [
        f"{report.config}: {usable:,} of {report.rows:,} prompts are whole",
        f"{report.whole:,} were, {report.resolved:,} resolved now, {report.kept:,} before",
    ]
    lines += [f"  {one.category}: {one.usable:,} of {one.rows:,}" for one in report.coverage if one.usable < one.rows]
    lines += [f"missing {gap.rows:,} of {gap.source} ({', '.join(gap.first)} …): {gap.why}" for gap in report.gaps]
    return "\n".join([*lines, f"written: {report.file}", ""])


def _said(report: LengthReport, to: Path) -> str:
    assert report.tokens is not None
    lines = [
        f"{report.written:,} of {report.rows:,} prompts of {report.target:,} tokens (o200k_base)",
        f"{report.exact:,} exact, shortest {report.tokens.least:,.0f}; {report.cut:,} cut, {report.filled:,} filled up",
    ]
    if report.target_tokenizer:
        own = report.target_tokenizer
        lines.append(f"in the target's tokenizer: p50 {own.p50:,.0f}, p99 {own.p99:,.0f}, most {own.most:,.0f}")
    lines += [f"left out: {one.id}: {one.why}" for one in report.left_out]
    return "\n".join([*lines, f"written: {to}", ""])
