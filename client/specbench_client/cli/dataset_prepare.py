"""`specbench dataset prepare`: prompts of one's own brought to a length."""

from __future__ import annotations

import re
from pathlib import Path

import click

from specbench_api.spec.workload import Source
from specbench_client.cli.embedding import SOURCE
from specbench_client.cli.options import FILE, OUTPUT
from specbench_client.dataset.bringing import Ask, LengthReport, Tokenizer, bring
from specbench_client.dataset.entries import rows_of, write_rows
from specbench_client.dataset.length.parts import TEMPLATE, Told
from specbench_client.dataset.length.ruler import load_ruler, load_tokenizer


def _tokens(_context: click.Context, _option: click.Parameter, value: str) -> int:
    """A number of tokens; 8k is 8,000, as SPEED-Bench counts."""
    found = re.fullmatch(r"([1-9]\d{0,6})(k?)", value)
    if not found:
        raise click.BadParameter(f"{value!r} is no number of tokens: give 8000 or 8k")
    return int(found[1]) * (1000 if found[2] else 1)


@click.command("prepare")
@FILE
@click.option(
    "--isl", callback=_tokens, required=True, help="Tokens of each prompt (input sequence length); 8k is 8000."
)
@click.option(
    "--template", default=TEMPLATE, help="How context and instruction are joined. [default: one after the other]"
)
@click.option(
    "--marks", nargs=2, metavar="BEGIN END", help="The context stands between these in the prompt; they stay."
)
@click.option("--speed-bench-way", is_flag=True, help="Cut or pad the end of the prompt, as SPEED-Bench does itself.")
@click.option("--table", type=click.Path(path_type=Path), help="o200k_base.tiktoken, where tiktoken's cache has none.")
@click.option(
    "--tokenizer", type=click.Path(path_type=Path), help="The target's tokenizer.json: its lengths beside ours."
)
@click.option("--allow-fewer", is_flag=True, help="Leave out rows that cannot be brought to the length.")
@SOURCE
@click.option("--to", type=click.Path(dir_okay=False, path_type=Path), required=True, help="The prompts, JSONL.")
@OUTPUT
def dataset_prepare(
    file: Path,
    *,
    isl: int,
    template: str,
    marks: tuple[str, str] | None,
    speed_bench_way: bool,
    table: Path | None,
    tokenizer: Path | None,
    allow_fewer: bool,
    source: Source | None,
    to: Path,
    output: str,
) -> None:
    """Bring the prompts of FILE to a length in tokens of o200k_base, without cutting an instruction.

    \b
      specbench dataset prepare documents.jsonl --isl 8k --to prompts-8k.jsonl
      specbench dataset prepare traffic.jsonl --isl 2k --marks '<document>' '</document>' --to prompts-2k.jsonl

    A row has the columns context and instruction, or a prompt with marks around its context. A long context loses its
    end; a short one is followed by the contexts of other rows of its category.
    """
    told = Told(template, marks or None)
    ruler = load_ruler(table)
    own = Tokenizer(*load_tokenizer(tokenizer)) if tokenizer else None
    rows, _ = rows_of(file, source)
    written, report = bring(rows, Ask(isl, told, speed_bench_way, allow_fewer), ruler, own)
    write_rows(to, written)
    click.echo(report.to_json() if output == "json" else _said(report, to), nl=False)


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
