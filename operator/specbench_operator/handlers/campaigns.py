"""Observe → decide → act → patch status, for campaigns. What an error means is said in `handlers.reconciler`.

A campaign never rests: its runs change without it. A look that finds nothing to do costs three requests.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from specbench_operator.campaign.decide import decide
from specbench_operator.campaign.refused import hindered, is_finished
from specbench_operator.campaign.scene import status_of
from specbench_operator.cluster.act import Actor
from specbench_operator.cluster.campaigns import CampaignActor, CampaignObserver
from specbench_operator.errors import Changed, OperatorError
from specbench_operator.handlers.queue import Key
from specbench_operator.handlers.reconciler import Outcome, wall_clock
from specbench_operator.reconcile.telling.transitions import WARNING
from specbench_operator.state.campaign import CampaignObserved
from specbench_operator.state.decision import Event
from specbench_operator.telemetry import Telemetry


@dataclass(frozen=True)
class CampaignReconciler:
    """SpecBenchCampaigns: one at a time, in whichever thread it is called from."""

    observer: CampaignObserver
    actor: CampaignActor
    teller: Actor
    telemetry: Telemetry
    now: Callable[[], datetime] = wall_clock

    def reconcile(self, key: Key) -> Outcome:
        """Look at a campaign once. Raises OperatorError after having said it in status."""
        began = time.monotonic()
        try:
            observed = self.observer.observe(key.namespace, key.name)
            return Outcome() if observed is None else self._follow(observed)
        finally:
            self.telemetry.reconciled(time.monotonic() - began)

    def _follow(self, observed: CampaignObserved) -> Outcome:
        now, resource = self.now(), observed.resource
        decision = decide(observed, now)
        try:
            self.actor.act(resource, decision)
        except Changed:
            raise
        except OperatorError as error:
            self.teller.tell(resource, hindered(resource, error, now))
            if is_finished(status_of(resource)):  # its status stays, so people are told elsewhere
                self.teller.announce(resource, (Event(WARNING, error.reason, str(error)),), now)
            raise
        if self.teller.tell(resource, decision.status):
            self.teller.announce(resource, decision.events, now)
        return Outcome(decision.look_again_s)
