"""The kinds that we touch, and where the API server has them. Listed, so that nothing needs to be discovered.

Discovery would cost requests at every start and a cache file that lies after the cluster behind an address changed.
"""

from __future__ import annotations

from specbench_api import GROUP, VERSION

RUN = "SpecBenchRun"
RUN_PLURAL = "specbenchruns"
CAMPAIGN = "SpecBenchCampaign"
CAMPAIGN_PLURAL = "specbenchcampaigns"
JOB, POD, SERVICE, CONFIG_MAP, SECRET, EVENT = "Job", "Pod", "Service", "ConfigMap", "Secret", "Event"
NODE = "Node"

_PATHS = {
    RUN: (f"/apis/{GROUP}/{VERSION}", RUN_PLURAL),
    CAMPAIGN: (f"/apis/{GROUP}/{VERSION}", CAMPAIGN_PLURAL),
    JOB: ("/apis/batch/v1", "jobs"),
    POD: ("/api/v1", "pods"),
    SERVICE: ("/api/v1", "services"),
    CONFIG_MAP: ("/api/v1", "configmaps"),
    SECRET: ("/api/v1", "secrets"),
    EVENT: ("/api/v1", "events"),
    NODE: ("/api/v1", "nodes"),
}


def path_of(kind: str, namespace: str | None, name: str | None = None) -> str:
    """URL path of one object, or of a collection; without a namespace, the cluster's own."""
    root, plural = _PATHS[kind]
    inside = f"/namespaces/{namespace}" if namespace else ""
    return f"{root}{inside}/{plural}" + (f"/{name}" if name else "")
