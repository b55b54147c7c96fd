"""`specbench dataset inspect`, `select` and `prepare`: prompts before anything is measured."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import click
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from specbench_api.api_model import ApiModel
from specbench_api.outcome.exit_codes import Exit
from specbench_api.spec.workload import Source
from specbench_client.cli.measure import request_headers
from specbench_client.cli.options import API_KEY_ENV, FILE, OUTPUT, Command, several_options
from specbench_client.cli.output import ProgressConsole, print_output
from specbench_client.cli.streams import echo, echo_document
from specbench_client.cli.value_types import Choice
from specbench_client.dataset.diversity import (
    RandomSimilarity,
    SelectionReport,
    SelectionRequest,
    Vectors,
    select_diverse,
)
from specbench_client.dataset.embeddings import embed_prompts
from specbench_client.dataset.inspection import (
    CategoryReport,
    Distribution,
    DuplicateReport,
    InspectionReport,
    SessionReport,
    TokenCounters,
    inspect_prompts,
)
from specbench_client.dataset.length_control import (
    TEMPLATE,
    ContextColumns,
    LengthReport,
    LengthRequest,
    TargetTokenizer,
    adjust_lengths,
)
from specbench_client.dataset.prompt_entries import (
    PromptEntry,
    entries_of,
    entry_columns,
    read_entries,
    read_prompt_rows,
    require_prompts,
    write_rows,
)
from specbench_client.dataset.speed_bench_preparation import (
    CONFIGS,
    PreparationReport,
    prepare_config,
    read_speed_bench,
)
from specbench_client.dataset.speed_bench_texts import SpeedBenchRow, UpstreamTables
from specbench_client.dataset.tokenizers import load_reference_tokenizer, load_target_tokenizer
from specbench_client.errors import BadInput
from specbench_client.measure_flags import with_flag_names
from specbench_client.report.text.text_table import DASH, TextTable, number, without_empty_columns
from specbench_client.visible_text import visible
from specbench_client.workload.row_outcomes import check_rows, first_problems
from specbench_client.workload.row_shapes import unsent_text

SOURCE = click.option(
    "--source",
    type=Choice([source.value for source in Source]),
    callback=lambda _context, _option, value: Source(value) if value else None,
    help="Format of the file.  [default: detected from its name and first row]",
)


_PATH = click.Path(path_type=Path)
TABLE = click.option("--table", type=_PATH, help="The file o200k_base.tiktoken, if tiktoken's cache does not have it.")
TARGET_TOKENIZER = click.option("--tokenizer", type=_PATH, help="The target's tokenizer.json, to count its tokens too.")


def embedding_options(*, required: bool) -> Callable[[Command], Command]:
    """Add --embeddings, --model and --api-key-env to a command."""
    return several_options(
        click.option(
            "--embeddings",
            metavar="URL|local|FILE",
            required=required,
            help="Source of embeddings: an OpenAI-compatible endpoint (http://HOST:PORT/v1), a sentence-transformers "
            "model on this machine (local), or a file (.npy, .parquet).",
        ),
        click.option(
            "--model", metavar="M", help="The embedding model: its name at the URL, or with local its folder or name."
        ),
        API_KEY_ENV,
    )


def embed_with_progress(
    embeddings: str, entries: Sequence[PromptEntry], model: str | None, api_key_env: str | None
) -> tuple[str, Vectors]:
    """Return the name of the embeddings and the vectors of the entries, with a progress bar on stderr."""
    headers = request_headers((), api_key_env)
    with progress_bar("embedding") as update:
        return embed_prompts(embeddings, entries, update, model=model, headers=headers)


@contextmanager
def progress_bar(label: str) -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar on stderr if that is a terminal. Yields its update function of (done, total)."""
    columns = (TextColumn(label), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = ProgressConsole()
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(label, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


INSPECT_COLUMNS = (
    "category", "prompts", "turns", "characters p50/p99", "o200k tokens p50/p99", "target tokens p50/p99", "similarity",
    "output copied p50",
)  # fmt: skip
_SHOWN = 5


@click.command()
@FILE
@embedding_options(required=False)
@click.option(
    "--outputs",
    metavar="COLUMN",
    help="Column with outputs to compare prompts with.  [default: output, outputs, response, reference]",
)
@TABLE
@TARGET_TOKENIZER
@SOURCE
@OUTPUT
def inspect(
    file: Path,
    *,
    embeddings: str | None,
    model: str | None,
    api_key_env: str | None,
    outputs: str | None,
    table: Path | None,
    tokenizer: Path | None,
    source: Source | None,
    output: str,
) -> int:
    """Inspect the prompts of FILE: counts, lengths, similarity, duplicates, placeholders, overlap with outputs.

    \b
      specbench dataset inspect prompts.jsonl
      specbench dataset inspect prompts.jsonl --embeddings http://HOST:8000/v1 --model M --output json
      specbench dataset inspect logs.jsonl --outputs completion

    Lengths are in characters and in tokens of o200k_base. Rows that are not valid prompts are counted and listed.
    The exit code is 2 if a run would reject FILE: for such rows, for placeholders (`specbench dataset prepare` fetches
    their texts), for an id that is used twice, or without any prompt. Prompts with tools need --tokenizer, here and in
    a run.
    """
    unreadable: list[str] = []
    rows, declared = read_prompt_rows(file, source, unreadable)
    found = check_rows(rows, declared, with_tools=tokenizer is not None, unreadable=unreadable)
    counters = _counters(table, tokenizer)
    similar = None
    if embeddings and found.prompts:
        similar = embed_with_progress(embeddings, entries_of(found), model, api_key_env)
    report = inspect_prompts(str(file), found, counters, similar, outputs)
    left_out = [f"{fault.row.place}: left out: {fault.reason}" for fault in found.excluded]
    lines = [
        *_lines(report),
        *first_problems(str(file), left_out, report.rows),
        *filter(None, [unsent_text(found.rows)]),
    ]
    print_output(output, report, text=lambda console: console.print_tables([_table(report)], lines))
    try:
        require_prompts(found, declared)
    except BadInput as error:
        echo(f"error: `specbench measure` would reject it: {with_flag_names(str(error))}", err=True)
        return error.exit
    return Exit.OK


def _counters(table: Path | None, tokenizer: Path | None) -> TokenCounters:
    """Return the token counters. A missing table is an error if it was given, else the report states it."""
    target = load_target_tokenizer(tokenizer)[0] if tokenizer else None
    try:
        reference = load_reference_tokenizer(table)
    except BadInput as error:
        if table is not None:
            raise
        return TokenCounters(None, target, str(error))
    return TokenCounters(lambda text: len(reference.encode_ordinary(text)), target)


def _table(report: InspectionReport) -> TextTable:
    counts = ", ".join(
        f"{count:,} {what}{'' if count == 1 else 's'}"
        for count, what in ((report.rows, "row"), (report.prompts, "prompt"), (report.turns, "turn"))
    )
    rows = [_cells(category) for category in [*report.categories, report.overall]]
    table = TextTable(f"{report.file}: {counts}", INSPECT_COLUMNS, rows, words=INSPECT_COLUMNS[:1])
    return without_empty_columns(table)  # some need --tokenizer, --embeddings, or outputs in the file


def _cells(category: CategoryReport) -> list[str]:
    lengths = category.lengths
    return [
        category.category, f"{category.prompts:,}", f"{category.turns:,}",
        *(_both(spread) for spread in (lengths.characters, lengths.o200k_tokens, lengths.target_tokens)),
        number(category.similarity, 3),
        f"{category.copied_share.p50:.2f}" if category.copied_share else DASH,
    ]  # fmt: skip


def _both(spread: Distribution | None) -> str:
    return f"{spread.p50:,.0f}/{spread.p99:,.0f}" if spread else DASH


def _lines(report: InspectionReport) -> list[str]:
    lines = [_sessions(report.sessions)] if report.sessions else []
    if report.embeddings:
        lines.append(f"similarity: mean cosine over all pairs, by {report.embeddings}")
    if report.overall.lengths.reason:
        lines.append(f"no o200k tokens: {report.overall.lengths.reason}")
    lines += _duplicates("exact duplicates", report.exact_duplicates)
    lines += _duplicates("near duplicates", report.near_duplicates)
    placeholders = report.placeholders
    if placeholders.rows:
        where = ", ".join(
            f"{name} {count:,}" for name, count in (placeholders.by_source or placeholders.by_category).items()
        )
        lines.append(f"placeholders: {placeholders.rows:,} ({where})")
    return lines


def _sessions(found: SessionReport) -> str:
    return (
        f"sessions: {found.sessions:,} with {found.requests:,} requests, {found.overlapping:,} of them in flight"
        f" together with earlier ones; {found.tool_results:,} tool results; waits {found.waited_s:,.0f} s;"
        f" {found.reusable_share:.0%} of the characters can be reused from earlier requests"
    )


def _duplicates(label: str, found: DuplicateReport) -> list[str]:
    if not found.groups_in_all:
        return []
    more = " …" if found.groups_in_all > _SHOWN else ""
    shown = "; ".join(" = ".join(group[:_SHOWN]) for group in found.groups[:_SHOWN])
    return [f"{label}: {found.extra:,} redundant in {found.groups_in_all:,} groups: {shown}{more}"]


SELECT_COLUMNS = ("category", "candidates", "selected", "random [95 %]", "greedy", "refined", "swaps")


@click.command()
@FILE
@click.option(
    "--count",
    type=click.IntRange(min=1),
    required=True,
    help="Number of prompts per category, or in total with --by all.",
)
@click.option(
    "--by",
    type=Choice(["category", "all"]),
    default="category",
    show_default=True,
    help="Whether to select within each category, or among all prompts.",
)
@embedding_options(required=True)
@SOURCE
@click.option("--allow-fewer", is_flag=True, help="Accept categories with fewer than --count prompts.")
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Seed of the random comparison; the selection has none.",
)
@click.option(
    "--draws",
    type=click.IntRange(min=0),
    default=100,
    show_default=True,
    help="Number of random subsets to compare with.",
)
@click.option(
    "--to", type=click.Path(dir_okay=False, path_type=Path), required=True, help="File for the selected prompts, JSONL."
)
@OUTPUT
def select(
    file: Path,
    *,
    count: int,
    by: Literal["category", "all"],
    embeddings: str,
    model: str | None,
    api_key_env: str | None,
    source: Source | None,
    allow_fewer: bool,
    seed: int,
    draws: int,
    to: Path,
    output: str,
) -> None:
    """Select the least similar prompts of FILE, greedily, then by exchanges until none improves the selection.

    \b
      specbench dataset select traffic.jsonl --count 80 --embeddings http://HOST:8000/v1 --model M --to prompts.jsonl
      specbench dataset select traffic.jsonl --count 80 --embeddings local --model ./all-MiniLM-L6-v2 --to prompts.jsonl
      specbench dataset select traffic.jsonl --count 200 --by all --embeddings vectors.npy --to prompts.jsonl

    The selection minimizes the sum of the cosine similarities of all pairs, as in SPEED-Bench. The table compares its
    mean similarity with random subsets of the same size, and with greedy selection alone. The same file and embeddings
    always give the same prompts.
    """
    entries = read_entries(file, source)
    name, vectors = embed_with_progress(embeddings, entries, model, api_key_env)
    with ProgressConsole().status("selecting"):
        request = SelectionRequest(count, by, allow_fewer, seed, draws)
        selected, report = select_diverse(entries, vectors, request, name)
    write_rows(to, map(entry_columns, selected))
    _print_selection(report, to, output)


def _print_selection(report: SelectionReport, to: Path, output: str) -> None:
    title = f"mean cosine similarity over all pairs, by {report.embeddings}"
    rows = [
        [
            group.category,
            f"{group.candidates:,}",
            f"{group.selected:,}",
            _random(group.random),
            number(group.greedy, 3),
            number(group.refined, 3),
            f"{group.swaps}",
        ]
        for group in report.groups
    ]
    rows += _totals(report) if report.by == "category" else []
    table = TextTable(title, SELECT_COLUMNS, rows, words=SELECT_COLUMNS[:1])
    print_output(output, report, text=lambda console: console.print_tables([table], [f"written: {to}"]))


def _totals(report: SelectionReport) -> list[list[str]]:
    """Return the rows below the categories: their mean, and all prompts together."""
    means = [number(mean, 3) for mean in (report.mean_random, report.mean_greedy, report.mean_refined)]
    whole = [f"{report.candidates:,}", f"{report.selected:,}", _random(report.overall_random), ""]
    return [
        ["mean of categories", "", "", *means, ""],
        ["all together", *whole, number(report.overall, 3), ""],
    ]


def _random(drawn: RandomSimilarity | None) -> str:
    return f"{drawn.mean:.3f} [{drawn.low:.3f}, {drawn.high:.3f}]" if drawn else DASH


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


@click.command()
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
@TABLE
@TARGET_TOKENIZER
@click.option("--allow-fewer", is_flag=True, help="Leave out rows that cannot reach the length, instead of failing.")
@SOURCE
@click.option("--config", type=Choice(CONFIGS), help="For speed-bench: the configuration.")
@click.option("--from", "where", type=_FOLDER, help="For speed-bench: the downloaded folder.  [default: the hub]")
@click.option("--revision", help="For speed-bench: the revision on the hub.")
@click.option("--sources", type=_FOLDER, help="For speed-bench: folder with the source datasets.  [default: the hub]")
@click.option("--to", type=_PATH, required=True, help="Output file, JSONL; for speed-bench: a folder.")
@OUTPUT
def prepare(
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

    SPEED-Bench: rows that cannot be resolved are listed and keep their placeholder; the exit code is then 3.
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
    _print_preparation(report, _length_text(report, to), output)
    return Exit.OK


def _reject(options: Mapping[str, object], what: str) -> None:
    """Raise UsageError if one of these options was given: they do not apply to what is prepared."""
    given = [name for name, value in options.items() if value]
    if given:
        raise click.UsageError(f"{given[0]} does not apply to {what}: leave it out")


def _speed_bench(rows: list[SpeedBenchRow], config: str, upstream: UpstreamTables, to: Path, output: str) -> int:
    with progress_bar("preparing") as update:
        report = prepare_config(rows, config, to, upstream, update)
    _print_preparation(report, _speed_bench_text(report), output)
    return Exit.OK if report.complete else Exit.UNTRUSTWORTHY


def _print_preparation(report: ApiModel, text: str, output: str) -> None:
    print_output(output, report, text=lambda _: echo_document(visible(text)))


def _speed_bench_text(report: PreparationReport) -> str:
    usable = sum(one.usable for one in report.coverage)
    lines = [
        f"{report.config}: {usable:,} of {report.rows:,} prompts are complete",
        f"{report.whole:,} had no placeholder, {report.resolved:,} are resolved",
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
