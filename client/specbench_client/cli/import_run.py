"""`specbench import`: from results whose resource was lost, the resource that carries them on."""

from __future__ import annotations

import json
import os
from urllib.parse import parse_qs, urlsplit

import click
import yaml
from pydantic import ValidationError

from specbench_api.outcome.layout import PLAN, measured_among, run_root
from specbench_api.plan.plan import Plan
from specbench_api.plan.restore import restore
from specbench_api.spec.reading import problems_in
from specbench_api.spec.results import S3
from specbench_client.cli.runs import run_store
from specbench_client.errors import BadInput, NotDurable
from specbench_client.local.place import open_results
from specbench_client.store.store import Refusal, Store


@click.command(name="import")
@click.argument("where", metavar="URI-or-DIR")
@click.option("--latest", is_flag=True, help="Of several runs, the newest.")
@click.option("--into", metavar="URI", help="Where the results lie for the cluster, if not at URI: s3://BUCKET/PREFIX.")
@click.option("--credentials-secret", metavar="NAME", help="spec.results.s3.credentialsSecret.")
@click.option("--output", "-o", type=click.Choice(["yaml", "json"]), default="yaml", show_default=True, help="Format.")
def import_run(where: str, into: str | None, credentials_secret: str | None, output: str, *, latest: bool) -> None:
    """Print the SpecBenchRun that carries on the results at URI. Nothing is written and no cluster is asked.

    \b
      specbench import s3://bench-results/llama33 --latest --credentials-secret bench-s3 > run.yaml
      kubectl apply -f run.yaml

    Its spec is read from plan.json; spec.results.adopt names the old UID, so that the operator finds what is measured,
    fills the status from it, and measures only what is missing. Deadlines are as by default: see docs/recovery.md.
    """
    store = run_store(open_results(where), where, latest=latest)
    plan = _plan(store)
    run = restore(plan, _bucket(store, plan, where, into, credentials_secret))
    spec = run.spec.model_dump(mode="json", by_alias=True, exclude_none=True, exclude_defaults=True)
    metadata = {"name": plan.name, "namespace": plan.namespace}
    resource = {"apiVersion": run.api_version, "kind": run.kind, "metadata": metadata, "spec": spec}
    text = json.dumps(resource, indent=2) + "\n" if output == "json" else yaml.safe_dump(resource, sort_keys=False)
    click.echo(text, nl=False)
    measured = len(measured_among(store.keys("points/"), (point.hash for point in plan.points)))
    click.echo(f"{measured} of {len(plan.points)} points are measured at {store.uri()}", err=True)


def _plan(store: Store) -> Plan:
    try:
        return Plan.from_json(store.get(PLAN) or b"")
    except ValidationError as error:
        what = "is damaged, or was written by another version of specbench"
        raise NotDurable(f"{store.uri(PLAN)}: {what}: use the version that measured it", Refusal.DAMAGED) from error


def _bucket(store: Store, plan: Plan, where: str, into: str | None, secret: str | None) -> S3:
    """Where a cluster finds the results. Raises BadInput where it would not find them."""
    below = run_root(plan.namespace, plan.name, plan.uid)
    place = into or store.uri()
    if not place.startswith("s3://"):
        raise BadInput(f"{place}: a cluster reads results from S3: copy them, and give --into s3://BUCKET/PREFIX")
    parts = urlsplit(place)
    path = parts.path.strip("/")
    if into is None:
        if path != below and not path.endswith(f"/{below}"):
            remedy = f"copy the results to PREFIX/{below}, or give --into s3://BUCKET/PREFIX if that is where they are"
            raise BadInput(f"{place}: a cluster looks for this run below …/{below}: {remedy}")
        path = path.removesuffix(below).strip("/")
    query = parse_qs(urlsplit(into or where).query)
    given = {
        "bucket": parts.netloc,
        "prefix": path,
        "endpoint": query.get("endpoint", [_environment("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")])[0],
        "region": query.get("region", [_environment("AWS_REGION", "AWS_DEFAULT_REGION")])[0],
        "credentialsSecret": secret,
    }
    try:
        return S3.model_validate({name: value for name, value in given.items() if value})
    except ValidationError as error:
        told = "; ".join(str(problem) for problem in problems_in(error, S3))
        raise BadInput(f"spec.results.s3 cannot be told from {place}: {told}") from error


def _environment(*names: str) -> str:
    return next((os.environ[name] for name in names if os.environ.get(name)), "")
