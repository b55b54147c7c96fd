"""`specbench import`: results of other benchmarks, by our definitions; their requests become a stored run."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import click

from specbench_api.outcome.exit_codes import Exit
from specbench_api.spec.drafter import BASELINE_NAME
from specbench_api.spec.load import Level
from specbench_client.cli.measure import run_name
from specbench_client.cli.options import RESULTS, output_option
from specbench_client.cli.output import print_report
from specbench_client.cli.streams import echo
from specbench_client.cli.value_types import SchemaNumber
from specbench_client.documents.summary import RunSummary
from specbench_client.errors import BadInput
from specbench_client.peer_results.reading import PeerReading, PeerResult, PeerResults
from specbench_client.peer_results.registry import KNOWN, read_peer_file
from specbench_client.report.text.text_table import Report, TextTable, Topic

ARM = "imported"
_NO_LOAD = "does not state its load: give --concurrency N (streams) or --rate R (requests per second)"


@click.command(name="import", epilog=f"Recognised by content: {KNOWN}.")
@click.argument("files", metavar="FILE…", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--baseline",
    "baselines",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Result of the same load without speculative decoding, to compare with. Repeatable.",
)
@click.option("--arm", default=ARM, show_default=True, help="Name of the arm that the FILEs measured.")
@click.option(
    "--concurrency", type=SchemaNumber("load.concurrency"), help="Streams, for files that do not state their load."
)
@click.option("--rate", type=SchemaNumber("load.rate"), help="Requests per second, likewise.")
@click.option(
    "--temperature",
    type=SchemaNumber("workloads[0].sampling.temperature"),
    help="Sampling temperature of the run, which no file states. Without it, answers are not compared.",
)
@RESULTS
@output_option("text", "json")
def import_(
    files: tuple[Path, ...],
    *,
    baselines: tuple[Path, ...],
    arm: str,
    concurrency: float | None,
    rate: float | None,
    temperature: float | None,
    results: str,
    output: str,
) -> int:
    """Read result files of other benchmarks, and show each figure by our definition or why it is not comparable.

    \b
      specbench import vllm.json                                      figures, and its requests if it has any
      specbench import eagle3.json --baseline none.json --arm eagle3  a run with a speed-up
      specbench import a.json b.json c.json --baseline n1.json --baseline n2.json --baseline n3.json

    Files of one arm and load are its repeats.

    Requests (vLLM: --save-detailed, SGLang: --output-details, AIPerf: profile_export.jsonl) become a run in --results,
    which `report`, `compare` and `decide` read like any other. Columns that a file lacks are missing.
    Definitions: docs, "Import results of other benchmarks".
    """
    if concurrency is not None and rate is not None:
        raise BadInput("--concurrency and --rate both state the load: give one of them")
    if not re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?", arm) or arm == BASELINE_NAME:
        raise BadInput(f"--arm {arm!r}: give lower-case letters, digits and dashes; files of the baseline: --baseline")
    level = None
    if concurrency is not None or rate is not None:
        level = Level(concurrency=None if concurrency is None else int(concurrency), rate=rate)
    given = [(BASELINE_NAME, path) for path in baselines] + [(arm, path) for path in files]
    readings = [(name, path, reading) for name, path in given for reading in read_peer_file(path)]
    documents = [
        reading.result if level is None else reading.result.model_copy(update={"level": level})
        for _, _, reading in readings
    ]
    stored = summary = None
    if any(reading.requests for _, _, reading in readings):
        stored, summary = _store(readings, level, temperature, results)
    print_report(output, PeerResults(results=documents, stored=stored), Report([*map(_topic, documents)]))
    if output == "text" and stored:
        echo(f"Stored: {stored}\nNext: specbench report {stored}")
    if not baselines:
        return Exit.OK
    compared = summary and any(cell.speedup and cell.speedup.value is not None for cell in summary.cells)
    if unpaired := dict.fromkeys(str(path) for _, path, reading in readings if not reading.requests):
        echo(f"Note: no speed-up with {', '.join(unpaired)}: a summary has no requests to pair", err=True)
    elif summary and not compared:
        echo(f"Note: no speed-up: {summary.headline}", err=True)
    return Exit.OK if compared else Exit.UNTRUSTWORTHY


def _store(
    readings: Sequence[tuple[str, Path, PeerReading]], level: Level | None, temperature: float | None, results: str
) -> tuple[str, RunSummary]:
    """Store the measurements that have requests, and return the run's root and summary. Raises BadInput."""
    from specbench_client.local.local_runs import find_local_run  # noqa: PLC0415
    from specbench_client.store.locations import open_store  # noqa: PLC0415
    from specbench_client.stored_runs.import_results import (  # noqa: PLC0415  pandas takes seconds to import
        ImportedMeasurement,
        import_plan,
        write_import,
    )
    from specbench_client.stored_runs.write_results import conclude  # noqa: PLC0415

    measurements = []
    for arm, path, reading in readings:
        load = level or reading.result.level
        if reading.requests and load is None:
            raise BadInput(f"{reading.result.file}: {_NO_LOAD}")
        if reading.requests and load is not None:
            ended = datetime.fromtimestamp(path.stat().st_mtime, UTC)
            measurements.append(ImportedMeasurement(arm, load, reading, ended))
    model = next((m.reading.result.model for m in measurements if m.reading.result.model), ARM)
    plan = import_plan(run_name(model) or ARM, measurements, temperature)
    run = find_local_run(open_store(results), plan)
    write_import(run.plan, run.store, measurements, compare_answers=temperature is not None)
    return run.uri, conclude(run.plan, run.store)


def _topic(result: PeerResult) -> Topic:
    """Return the figures of one measurement, or how many requests it has without a summary."""
    load = result.level.words if result.level else "unknown load"
    title = f"{result.file}: {result.tool}{f' {result.tool_version}' if result.tool_version else ''}, {load}"
    notes = [f"Note: {limit}" for limit in result.limits]
    if not result.figures:
        return Topic("", lines=[f"{title}: {result.requests_stored} requests, without a summary", *notes])
    rows = [
        [
            figure.name,
            f"{figure.printed:.4g} {figure.unit}",
            "not comparable" if figure.value is None else f"{figure.value:.4g} {figure.unit}",
            figure.reason,
        ]
        for figure in result.figures
    ]
    columns = ["figure", "in the file", "by our definition", "reason"]
    return Topic("", [TextTable(title, columns, rows, words=["figure", "reason"])], notes)
