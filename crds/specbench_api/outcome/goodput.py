"""What a cell delivers within the run's targets: requests that are in time, a second and as a share."""

from __future__ import annotations

from specbench_api.model import ApiModel
from specbench_api.outcome.figure import Figure
from specbench_api.spec.slo import Slo


class Goodput(ApiModel):
    """SLO goodput of one cell; not the token goodput of some schedulers, which is tokens emitted over step time."""

    slo: Slo
    """By which targets it was judged."""
    rate: Figure
    """Requests a second that ended in the steady window and met every target."""
    share: Figure
    """Share of the steady state's requests that met every target; one that failed met none."""
    by_target: dict[str, Figure]
    """ttft_ms, tpot_ms, e2e_ms, as far as they are given: share of these requests that met this one target."""
