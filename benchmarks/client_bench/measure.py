"""Runs specbench's client on one engine group, as in a normal measurement.

`specbench measure` also writes a summary and a report with plots; these are excluded because no other client does so.
"""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path

from client_bench.server_responses import MODEL
from specbench_api.plan.expansion import expand
from specbench_api.plan.plan import Plan
from specbench_api.spec.parsing import parse_run
from specbench_client.drive.group import drive_group
from specbench_client.drive.options import ClientOptions, DriveOptions
from specbench_client.store.folder import FolderStore

_UID = "00000000-0000-0000-0000-000000000000"


def main() -> None:
    """Measure one point and store its records."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--endpoint", required=True)
    parser.add_argument("--dataset", type=Path, required=True)
    parser.add_argument("--concurrency", type=int, required=True)
    parser.add_argument("--requests", type=int, required=True)
    parser.add_argument("--max-tokens", type=int, required=True)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--results", type=Path, required=True)
    options = parser.parse_args()
    plan = _plan(options)
    store = FolderStore(options.results)
    drive = DriveOptions(attempt="1", client=ClientOptions(workers=options.workers))
    asyncio.run(drive_group(plan, plan.groups[0], options.endpoint, store, drive))


def _plan(options: argparse.Namespace) -> Plan:
    """Build a plan of one arm (the baseline) and one point. The engine kind simulator uses vLLM's dialect."""
    dataset = {"source": "jsonl", "uri": str(options.dataset.resolve())}
    load = {"concurrency": [options.concurrency], "requests": options.requests, "warmupRequests": 0, "repeats": 1}
    run = parse_run({
        "apiVersion": "specbench.io/v1alpha1",
        "kind": "SpecBenchRun",
        "metadata": {"name": "client", "namespace": "local", "uid": _UID},
        "spec": {
            "model": {"name": MODEL},
            "engine": {"kind": "simulator"},
            "drafters": [{"name": "ngram", "method": "ngram"}],
            "workloads": [{"name": "clock", "dataset": dataset, "output": {"maxTokens": options.max_tokens}}],
            "load": load,
            "results": {"s3": {"bucket": "unused"}},
        },
    })  # fmt: skip
    return expand(run)


if __name__ == "__main__":
    main()
