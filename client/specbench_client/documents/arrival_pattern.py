"""How the requests of a load arrived, as results state it."""

from __future__ import annotations

from typing import Final, Literal

from specbench_api.api_model import ApiModel
from specbench_api.spec.load import Arrival, ArrivalProcess, Load

CLOSED_LOOP: Final = "ClosedLoop"


class ArrivalPattern(ApiModel):
    """How requests arrived. Together with the level it identifies the load of a row."""

    process: Literal["ClosedLoop"] | ArrivalProcess
    """ClosedLoop: each stream sends its next request when the previous one is answered. Otherwise the arrival process
    of an open loop."""
    burstiness: float | None = None
    """Gamma only: shape of the inter-arrival times, whose CV is 1 / sqrt(burstiness)."""
    trace: str | None = None
    """Trace only: location of the recording."""
    max_in_flight: int | None = None
    """Open loop: most conversations at once; None: no limit."""

    @classmethod
    def of(cls, load: Load) -> ArrivalPattern:
        """Return the pattern of a run's load."""
        if load.concurrency is not None:
            return cls(process=CLOSED_LOOP)
        arrival = load.arrival or Arrival()
        shape = arrival.burstiness if arrival.process is ArrivalProcess.GAMMA else None
        return cls(process=arrival.process, burstiness=shape, trace=arrival.uri, max_in_flight=arrival.max_in_flight)

    @property
    def words(self) -> str:
        """Label for tables: `closed loop`, `Poisson, at most 50 at once`, `Gamma, burstiness 0.25`, `Trace a.csv`."""
        if self.process == CLOSED_LOOP:
            return "closed loop"
        shape = f", burstiness {self.burstiness:g}" if self.burstiness is not None else ""
        most = "" if self.max_in_flight is None else f", at most {self.max_in_flight} at once"
        return self.process + shape + (f" {self.trace}" if self.trace else "") + most
