"""What a spec names that is not on this machine: told by `plan` and `validate`, refused by `run`.

A warning and no error there, because the same file may be meant for a cluster, where images and volumes hold it. What
would spoil the answers is a warning everywhere: see `local.room`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from specbench_api.launch.table import LAUNCHERS
from specbench_api.plan.expand import launch_order
from specbench_api.plan.plan import Plan
from specbench_api.spec.dataset import MADE, Dataset
from specbench_api.spec.workload import Workload
from specbench_client.errors import BadInput
from specbench_client.extras import remedy
from specbench_client.local.needs import lacks
from specbench_client.workload.chat_template.applied import AppliedTemplate
from specbench_client.workload.chat_template.loading import load_template
from specbench_client.workload.chat_template.places import Kind, place_of
from specbench_client.workload.chat_template.tokens import EXTRA, installed

ELSEWHERE = ("s3://", "hf://")


def missing_here(plan: Plan, base_dir: Path) -> list[str]:
    """A line for each model and each file of prompts that is missing, with the path that was tried."""
    launches = [LAUNCHERS[plan.engine.kind].launch(launch_order(plan, arm)) for arm in plan.arms]
    models = [line for launch in launches for line in lacks(launch, base_dir)]
    return [*dict.fromkeys(models), *_prompts(plan, base_dir), *_templates(plan, base_dir)]


def warn(spoiling: list[str], missing: Sequence[str] = ()) -> None:
    """To people, on stderr. `missing`: what `run` would refuse."""
    for line in (*spoiling, *missing):
        click.echo(f"warning: {line}", err=True)
    if missing:
        click.echo("warning: `specbench run` would refuse this here; on a cluster, images and volumes count", err=True)


def readable(uri: str, base_dir: Path) -> bool:
    """Whether the prompts can be read here; what no client could read is left to the reader, which says why."""
    return "://" in uri or _path(uri, base_dir).exists()


def uris_of(dataset: Dataset) -> list[tuple[str, str]]:
    """Field and file of every place that a dataset names; none of what the hub serves or what is made."""
    rows = [(f"members[{row}].uri", member.uri) for row, member in enumerate(dataset.members or [])]
    return [(field, uri) for field, uri in [("uri", dataset.uri), *rows] if uri is not None]


def at_hand(dataset: Dataset, base_dir: Path) -> bool:
    """Whether all of it lies on this machine: a plan is made without S3 and without the hub."""
    parts = [dataset] if dataset.members is None else dataset.members
    named = all(part.uri is not None or part.source in MADE for part in parts)
    return named and all(not uri.startswith(ELSEWHERE) and readable(uri, base_dir) for _, uri in uris_of(dataset))


def _prompts(plan: Plan, base_dir: Path) -> list[str]:
    return [
        f"spec.workloads[{row}].dataset.{field}: {_path(uri, base_dir)} is not there:"
        " relative paths begin beside the spec"
        for row, workload in enumerate(plan.workloads)
        for field, uri in uris_of(workload.dataset)
        if not readable(uri, base_dir)
    ]


def template_here(plan: Plan, workload: Workload, base_dir: Path) -> AppliedTemplate | None:
    """The chat template that the client would apply, where it lies on this machine.

    None where the client applies none, or where it lies elsewhere. Raises BadInput.
    """
    declared = workload.client_template
    if declared is None:
        return None
    if not installed():
        raise BadInput(f"token ids need the package {EXTRA}: {remedy(EXTRA)}")
    elsewhere = (declared.template or "").startswith(ELSEWHERE)
    if elsewhere or place_of(declared, plan.target, base_dir).kind is not Kind.FOLDER:
        return None
    return load_template(declared, plan.target, base_dir)


def _templates(plan: Plan, base_dir: Path) -> list[str]:
    lines = []
    for row, workload in enumerate(plan.workloads):
        try:
            template_here(plan, workload, base_dir)
        except BadInput as error:
            lines.append(f"spec.workloads[{row}].chatTemplate: {error}")
    return lines


def _path(uri: str, base_dir: Path) -> Path:
    return base_dir / Path(uri).expanduser()
