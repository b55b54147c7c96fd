"""`specbench run`: execute a SpecBenchRun, or every run of a SpecBenchCampaign, on this machine."""

from __future__ import annotations

from pathlib import Path

import click

from specbench_api.campaign.expansion import expand_campaign
from specbench_api.plan.expansion import expand
from specbench_api.spec.campaign import SpecBenchCampaign
from specbench_client.cli.options import (
    FILE,
    KEEP_TEXT,
    NEW,
    OUTPUT,
    RESULTS,
    RETRIES,
    RETRY_INVALID,
    SET,
    read_spec_file,
)
from specbench_client.cli.validate import campaign_warnings, plan_warnings, print_warnings
from specbench_client.known_secrets import api_key_header


@click.command()
@FILE
@SET
@OUTPUT
@RESULTS
@NEW
@RETRIES
@RETRY_INVALID
@KEEP_TEXT
def run(
    file: Path,
    settings: tuple[str, ...],
    output: str,
    results: str,
    *,
    new: bool,
    retries: int | None,
    retry_invalid: bool,
    keep_text: bool,
) -> int:
    """Measure FILE, a SpecBenchRun or a SpecBenchCampaign, on this machine, with engines as local processes.

    \b
      specbench run run.yaml
      specbench run run.yaml --results s3://bench-results/try --set spec.load.repeats=5
      specbench run campaign.yaml --set spec.template.spec.load.repeats=5

    Plan, points and stored results are the same as on a cluster. Points that the results folder already contains are
    not measured again, so you can interrupt the command and run it again to continue. --new measures everything again,
    as a separate run.

    The runs of a campaign are measured one after another; a table follows at the end, and the exit code is the worst
    one.
    """
    resource = read_spec_file(file, settings)
    base_dir = file.resolve().parent
    if isinstance(resource, SpecBenchCampaign):
        planned = expand_campaign(resource)
        plans = [each.plan for each in planned.runs]
        print_warnings(campaign_warnings(planned, base_dir)[0])
    else:
        plan = expand(resource)
        plans = [plan]
        print_warnings(plan_warnings(plan))
    # Imported late, because pandas takes seconds to import and an invalid spec should be reported at once.
    from specbench_client.cli.run_execution import (  # noqa: PLC0415
        RunOptions,
        measure_campaign,
        run_and_print,
    )
    from specbench_client.drive.options import ClientOptions  # noqa: PLC0415

    options = RunOptions(
        base_dir,
        results,
        output,
        client=ClientOptions(keep_text, api_key_header() if any(each.engine.is_external for each in plans) else {}),
        new=new,
        retries=retries,
        retry_invalid=retry_invalid,
    )
    return (
        measure_campaign(resource, planned.runs, options)
        if isinstance(resource, SpecBenchCampaign)
        else run_and_print(plan, options.for_spec(resource.spec))
    )
