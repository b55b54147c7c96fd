"""The pod of client and report Jobs: our own image, no Kubernetes rights, S3 by environment.

S3's address and keys come by the standard variables of the AWS SDKs and never by the command line, which anybody may
read who can list pods.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from specbench_api.outcome.layout import run_root
from specbench_api.plan.names import plan_name
from specbench_api.spec.results import S3
from specbench_api.spec.run import SpecBenchRun
from specbench_operator.render.child import OURS, Manifest, empty_dir, limits, same_for_all
from specbench_operator.settings import Settings

CONTAINER = "client"
PLAN_DIR = "/plan"
SPOOL_DIR = "/spool"
GRACE_S = 30
"""Time to flush records that are not in S3 yet."""
RETRIES = 6
"""With Kubernetes' backoff (10 s, doubling) S3 may be away for ten minutes beyond the client's own patience."""

_SECRET_KEYS = {"AWS_ACCESS_KEY_ID": False, "AWS_SECRET_ACCESS_KEY": False, "AWS_SESSION_TOKEN": True}
"""Key of the Secret and variable alike → whether it may be missing."""


def results_root(run: SpecBenchRun) -> str:
    """Root of all results in S3; the client finds its run below it by the plan."""
    s3 = run.spec.results.s3
    return f"s3://{s3.bucket}/{s3.prefix}" if s3.prefix else f"s3://{s3.bucket}"


def results_uri(run: SpecBenchRun) -> str:
    """Root of this run's results in S3."""
    meta = run.metadata
    return f"{results_root(run)}/{run_root(meta.namespace, meta.name, run.results_uid)}"


def client_pod(
    run: SpecBenchRun,
    args: Sequence[str],
    settings: Settings,
    told: Mapping[str, str] | None = None,
    *,
    plan: bool = True,
) -> Manifest:
    """PodSpec of `specbench-client ARGS`; `told`: further environment; `plan`: whether it is given the plan's file."""
    placement = run.spec.placement
    account = placement.service_account_name
    return {
        **same_for_all(run, ours=True, grace_s=GRACE_S),
        **({"serviceAccountName": account} if account else {}),
        **({"nodeSelector": placement.client_node_selector} if placement.client_node_selector else {}),
        "volumes": [
            *([{"name": "plan", "configMap": {"name": plan_name(run.metadata.name)}}] if plan else []),
            empty_dir("spool"),
            empty_dir("tmp"),
        ],
        "containers": [_container(run, args, settings, told or {}, plan=plan)],
    }


def _container(
    run: SpecBenchRun, args: Sequence[str], settings: Settings, told: Mapping[str, str], *, plan: bool
) -> Manifest:
    return {
        "name": CONTAINER,
        "image": settings.client_image,
        "imagePullPolicy": settings.image_pull_policy,
        "command": ["specbench-client"],
        "args": list(args),
        "env": [*_environment(run.spec.results.s3), *({"name": name, "value": value} for name, value in told.items())],
        **limits(run.spec.placement.client_resources),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": dict(OURS),
        "volumeMounts": [
            *([{"name": "plan", "mountPath": PLAN_DIR, "readOnly": True}] if plan else []),
            {"name": "spool", "mountPath": SPOOL_DIR},
            {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 - a mount, not a file
        ],
    }


def _environment(s3: S3) -> list[Manifest]:
    plain = {
        "HOME": "/tmp",  # noqa: S108 - the only writable place for other people's caches
        "AWS_REGION": s3.region,
        "AWS_DEFAULT_REGION": s3.region,
        **({"AWS_ENDPOINT_URL_S3": s3.endpoint} if s3.endpoint else {}),
    }
    secret = s3.credentials_secret
    keys = _SECRET_KEYS.items() if secret else ()
    return [
        *({"name": name, "value": value} for name, value in plain.items()),
        *(
            {
                "name": key,
                "valueFrom": {
                    "secretKeyRef": {"name": secret, "key": key, **({"optional": True} if optional else {})},
                },
            }
            for key, optional in keys
        ),
    ]
