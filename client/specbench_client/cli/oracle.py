"""`specbench oracle`: how far drafting could go, and how far the best fixed draft length gets."""

from __future__ import annotations

from pathlib import Path

import click

from specbench_client.cli.plots import PLOT, write_plot
from specbench_client.cli.replay import LATEST, LOAD, PROMPTS, TOKENIZER, WORKLOAD
from specbench_client.cli.runs import stored_run
from specbench_client.cli.sheets import FORMAT, print_sheets
from specbench_client.cli.step_costs import BATCH, STEP_COST, Counts, cost_model
from specbench_client.errors import BadInput


@click.command()
@click.argument("where", metavar="FILE-or-RUN")
@click.option(
    "--arm",
    metavar="NAME",
    help="Whose drafts.  [default: of a run the one with the longest drafts of those that tell their steps]",
)
@click.option("--with", "second", metavar="NAME", help="Combine with this drafter; `replay`: with n-gram, replayed.")
@STEP_COST
@BATCH
@click.option(
    "--drafts",
    "-k",
    type=Counts(),
    default="1,2,3,5,7,10",
    show_default=True,
    help="Fixed draft lengths beside it.",
)
@click.option("--as-published", is_flag=True, help="By the rules of the published simulator, with its faults.")
@TOKENIZER
@PROMPTS
@WORKLOAD
@LOAD
@LATEST
@PLOT
@FORMAT
def oracle(
    where: str,
    *,
    arm: str | None,
    second: str | None,
    step_cost: str | None,
    batch: tuple[int, ...],
    drafts: tuple[int, ...],
    as_published: bool,
    tokenizer: str | None,
    prompts: str | None,
    workload: str | None,
    load: str | None,
    latest: bool,
    plot: Path | None,
    output: str,
) -> None:
    """Bound what draft lengths could gain: an oracle drafts at each step exactly what will be accepted.

    RUN is a stored run with an arm of long drafts (numSpeculativeTokens 10 or 20) whose engine tells the accepted
    drafts of each step; FILE an engine's trace (JSONL): `prompt_token_ids`, and `acc_NAME: {"acc_len": […]}`, the
    tokens that a step emits at each output position.

    \b
      specbench oracle specbench-results --latest                      tokens a step: oracle, fixed lengths, other k
      specbench oracle trace.jsonl --step-cost published-h100 --batch 1,8,32
      specbench oracle specbench-results --latest --with draft-q4      whichever of two arms has more accepted
      specbench oracle trace.jsonl --arm eagle --with replay           combined with n-gram, replayed on the texts
      specbench oracle trace.jsonl --arm eagle --with ngram --plot difference.html     where which accepts more

    What it bounds, by which formulas, and what it does not say: docs/oracle.md.
    """
    from specbench_client.analysis.oracle.course import OURS, PUBLISHED  # noqa: PLC0415  statistics: seconds of imports
    from specbench_client.analysis.oracle.policies import Pricing  # noqa: PLC0415
    from specbench_client.analysis.oracle.report import oracle_report  # noqa: PLC0415
    from specbench_client.dataset.length.ruler import load_encoder  # noqa: PLC0415
    from specbench_client.dataset.logs.subject import trace_subject  # noqa: PLC0415
    from specbench_client.dataset.logs.traces import read_traces  # noqa: PLC0415
    from specbench_client.drive.answered import Chosen, read_answered  # noqa: PLC0415
    from specbench_client.drive.logged import Texts  # noqa: PLC0415
    from specbench_client.drive.reached import Asked, run_subject  # noqa: PLC0415
    from specbench_client.report.oracle import oracle_lines, oracle_sheets  # noqa: PLC0415

    cost = cost_model(step_cost)
    if Path(where).is_file():
        subject = trace_subject(read_traces(Path(where)), arm, second, cost)
    else:
        run = read_answered(stored_run(where, latest=latest), Chosen(workload, load))
        texts = Texts(load_encoder(tokenizer) if tokenizer else None, Path(prompts) if prompts else None)
        subject = run_subject(run, Asked(arm, second, texts), cost)
    for each in (subject.main, *([subject.second] if subject.second else [])):
        if not each.single.answers.count:
            raise BadInput(f"{where}: no answer of {each.name} has a step: they need two tokens or more each")
    report = oracle_report(subject, drafts, Pricing(batch, cost, PUBLISHED if as_published else OURS))
    if plot:
        from specbench_client.report.plots.oracle_picture import oracle_picture  # noqa: PLC0415  as is matplotlib

        write_plot(plot, oracle_picture(report, subject), "add --step-cost and --batch, or --with a second drafter")
    print_sheets(report, oracle_sheets(report), oracle_lines(report), output)
