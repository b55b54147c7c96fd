"""`specbench recover`: print the SpecBenchRun that continues stored results whose resource was lost."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs, urlsplit

import click
import yaml
from pydantic import ValidationError

from specbench_api.outcome.layout import PLAN, run_root
from specbench_api.plan.expansion import restore
from specbench_api.spec.parsing import problems_in
from specbench_api.spec.results import S3
from specbench_client.cli.options import LATEST, output_option
from specbench_client.cli.run_selection import select_run
from specbench_client.cli.streams import echo, echo_document
from specbench_client.errors import BadInput
from specbench_client.stored_runs.run import Run
from specbench_client.visible_text import visible


@click.command()
@click.argument("where", metavar="URI-or-DIR")
@LATEST
@click.option(
    "--into",
    metavar="URI",
    help="Where the cluster finds the results, if not at URI-or-DIR: s3://BUCKET/PREFIX.",
)
@click.option(
    "--credentials-secret", metavar="NAME", help="Name of the Secret, for spec.results.s3.credentialsSecretRef."
)
@output_option("yaml", "json")
def recover(where: str, into: str | None, credentials_secret: str | None, output: str, *, latest: bool) -> None:
    """Print the SpecBenchRun that continues stored results whose resource was lost; nothing is written.

    \b
      specbench recover s3://bench-results/llama33 --latest --credentials-secret bench-s3 > run.yaml
      kubectl apply -f run.yaml

    The spec is read from plan.json. spec.results.adopt contains the old UID, so the operator finds the measured
    points, restores the status, and measures only what is missing. Deadlines have their default values (docs,
    "Recover a lost run"). Images, commands and other inputs come from plan.json, which anybody who can write
    to the bucket may have changed: they are listed on stderr, so that you check them before you apply the resource.
    """
    stored = select_run(where, latest=latest)
    plan = stored.plan
    run = restore(plan, _bucket(stored, where, into, credentials_secret))
    spec = run.spec.model_dump(mode="json", by_alias=True, exclude_none=True, exclude_defaults=True)
    metadata = {"name": plan.name, "namespace": plan.namespace}
    resource = {"apiVersion": run.api_version, "kind": run.kind, "metadata": metadata, "spec": spec}
    text = json.dumps(resource, indent=2) + "\n" if output == "json" else yaml.safe_dump(resource, sort_keys=False)
    echo_document(visible(text))
    lines = executed_inputs(resource)
    if lines:
        echo(
            f"warning: {stored.store.uri(PLAN)} states what would be executed and read; check it before you apply:",
            err=True,
        )
        echo("\n".join(f"  {line}" for line in lines), err=True)
    echo(f"{stored.count_measured()} of {len(plan.points)} points are measured at {stored.uri}", err=True)


_EXECUTED = (
    "spec.engine.image",
    "spec.engine.command",
    "spec.engine.args",
    "spec.engine.config",
    "spec.engine.env",
    "spec.engine.endpoints",
    "spec.model.uri",
    "spec.model.pvc",
    "spec.model.adapter",
    "spec.placement",
)
"""Fields with which a file decides what is executed, with which rights, and what is read."""
_EXECUTED_IN_ROWS = {"drafters": ("model", "args", "speculativeConfig"), "workloads": ("dataset", "chatTemplate")}
_SHOWN_MAX = 300
"""Characters of a value that are shown."""


def executed_inputs(resource: Mapping[str, Any]) -> list[str]:
    """Return a line `field: value` for each field with which a stranger's file decides what is executed or read."""
    found = [(path, _value(resource, path)) for path in _EXECUTED]
    for rows, names in _EXECUTED_IN_ROWS.items():
        for index, row in enumerate(resource["spec"].get(rows, [])):
            found += [(f"spec.{rows}[{index}].{name}", row.get(name)) for name in names]
    texts = [(path, json.dumps(value, ensure_ascii=False)) for path, value in found if value]
    return [f"{path}: {text[:_SHOWN_MAX]}{'…' if len(text) > _SHOWN_MAX else ''}" for path, text in texts]


def _value(resource: Mapping[str, Any], path: str) -> Any:
    value: Any = resource
    for step in path.split("."):
        value = value.get(step) if isinstance(value, Mapping) else None
    return value


def _bucket(run: Run, where: str, into: str | None, secret: str | None) -> S3:
    """Return where a cluster finds the results. Raises BadInput if it would not find them there."""
    root = run_root(run.plan.namespace, run.plan.name, run.plan.uid)
    uri = into or run.uri
    if not uri.startswith("s3://"):
        raise BadInput(f"{uri}: a cluster reads results from S3 only: copy them, and give --into s3://BUCKET/PREFIX")
    parts = urlsplit(uri)
    prefix = parts.path.strip("/")
    if into is None:
        if prefix != root and not prefix.endswith(f"/{root}"):
            remedy = f"copy the results to PREFIX/{root}, or give --into s3://BUCKET/PREFIX if they are there"
            raise BadInput(f"{uri}: a cluster looks for this run at …/{root}: {remedy}")
        prefix = prefix.removesuffix(root).strip("/")
    query = parse_qs(urlsplit(into or where).query)
    fields = {
        "bucket": parts.netloc,
        "prefix": prefix,
        "endpoint": query.get("endpoint", [_environment("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")])[0],
        "region": query.get("region", [_environment("AWS_REGION", "AWS_DEFAULT_REGION")])[0],
        "credentialsSecretRef": {"name": secret} if secret else None,
    }
    try:
        return S3.model_validate({name: value for name, value in fields.items() if value})
    except ValidationError as error:
        problems = "; ".join(str(problem) for problem in problems_in(error, S3))
        raise BadInput(f"{uri}: does not give a valid spec.results.s3: {problems}") from error


def _environment(*names: str) -> str:
    return next((os.environ[name] for name in names if os.environ.get(name)), "")
