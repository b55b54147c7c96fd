"""Everything about one campaign, read in one go, and a decision about it carried out.

A run is the campaign's own if it bears its UID as a label and is owned by it; any other is a stranger, whose name is
all that is read of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from specbench_api.campaign.names import LABEL_CAMPAIGN_UID, may_be_named
from specbench_operator.cluster.api import UNREACHABLE, Api, Missing, Raw
from specbench_operator.cluster.campaign_views import run_seen, stranger
from specbench_operator.cluster.kinds import CAMPAIGN, RUN
from specbench_operator.cluster.views import owner_of
from specbench_operator.errors import OperatorError
from specbench_operator.state.campaign import CampaignDecision, CampaignObserved, RunPatch, RunSeen


class CampaignObserver:
    """Reads; changes nothing."""

    def __init__(self, api: Api) -> None:
        self._api = api

    def campaigns(self, namespace: str | None) -> list[Mapping[str, Any]] | None:
        """All campaigns, for the relist; None where the cluster does not know what a campaign is."""
        try:
            return list(self._api.list(CAMPAIGN, namespace))
        except Missing:
            return None

    def observe(self, namespace: str, name: str) -> CampaignObserved | None:
        """One campaign, or None where there is none. Raises Retry."""
        resource = self._api.get(CAMPAIGN, namespace, name)
        if resource is None:
            return None
        if resource["metadata"].get("deletionTimestamp"):
            return CampaignObserved(resource)
        uid = resource["metadata"]["uid"]
        marked = self._api.list(RUN, namespace, labels=f"{LABEL_CAMPAIGN_UID}={uid}")
        others = self._api.list(RUN, namespace, labels=f"{LABEL_CAMPAIGN_UID}!={uid}", bare=True)
        strangers = [raw for raw in marked if owner_of(raw) != uid] + others
        return CampaignObserved(
            resource=resource,
            runs=tuple(run_seen(raw) for raw in marked if owner_of(raw) == uid),
            strangers={raw["metadata"]["name"]: stranger(raw, name) for raw in strangers},
            orphans=tuple(self._orphans(namespace, name, strangers)),
        )

    def _orphans(self, namespace: str, campaign: str, strangers: list[Raw]) -> Iterator[RunSeen]:
        for bare in strangers:
            meta = bare["metadata"]
            if not meta.get("ownerReferences") and may_be_named(campaign, meta["name"]):
                raw = self._api.get(RUN, namespace, meta["name"])
                if raw is not None and raw["metadata"]["uid"] == meta["uid"]:
                    yield run_seen(raw)


class CampaignActor:
    """Writes SpecBenchRuns."""

    def __init__(self, api: Api) -> None:
        self._api = api

    def act(self, resource: Mapping[str, Any], decision: CampaignDecision) -> None:
        """Carry out everything but status and events.

        One run that is refused holds up no other; then the first refusal is raised: Changed where a name was taken
        meanwhile, Retry or Stop as the API server has it.
        """
        namespace = resource["metadata"]["namespace"]
        writes: list[Callable[[], object]] = [
            *(partial(self._patch, namespace, patch) for patch in decision.patch),
            *(partial(self._api.delete, RUN, namespace, ref.name, ref.uid) for ref in decision.delete),
            *(partial(self._api.create, manifest) for manifest in decision.create),  # never over what is there
        ]
        refusals: list[OperatorError] = []
        for write in writes:
            refusals += _refusal(write)
            if refusals and refusals[-1].reason == UNREACHABLE:
                break  # each further one would wait as long for nothing
        if refusals:
            raise refusals[0]

    def _patch(self, namespace: str, patch: RunPatch) -> None:
        meta = {"uid": patch.ref.uid, **patch.change.get("metadata", {})}
        self._api.merge(RUN, namespace, patch.ref.name, {**patch.change, "metadata": meta})


def _refusal(write: Callable[[], object]) -> list[OperatorError]:
    try:
        write()
    except OperatorError as error:
        return [error]
    return []
