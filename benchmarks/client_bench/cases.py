"""The benchmark's loads, by name."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from client_bench.clockserver import Pace


@dataclass(frozen=True)
class Case:
    """A closed loop of `streams` with `requests` in total and `max_tokens` each (the server returns half or more).

    `ends_together`: the server returns all of `max_tokens`, so that all streams end in the same step, as with
    `ignore_eos`. `tls`: over https.
    """

    name: str
    streams: int
    requests: int
    max_tokens: int
    pace: Pace = field(default_factory=Pace)
    ends_together: bool = False
    tls: bool = False

    @property
    def title(self) -> str:
        steps = f"{self.pace.step_ms:g} ms steps" if self.pace.step_ms else "unpaced"
        burst = f", {self.pace.burst} chunks a send" if self.pace.burst > 1 else ""
        ending = ", all end together" if self.ends_together else ""
        scheme = ", https" if self.tls else ""
        return f"{self.streams} stream{'s' if self.streams > 1 else ''}, {steps}{burst}{ending}{scheme}"

    def shortened(self) -> Case:
        """Return a quick version: at most two requests per stream, with at most 64 tokens."""
        return replace(self, requests=min(self.requests, 2 * self.streams), max_tokens=min(self.max_tokens, 64))


_UNPACED = Pace(step_ms=0)
_UNPACED_BURST = Pace(step_ms=0, burst=8)

CASES = {
    case.name: case
    for case in (
        Case("1", streams=1, requests=8, max_tokens=64),
        Case("64", streams=64, requests=256, max_tokens=128),
        Case("256", streams=256, requests=768, max_tokens=128),
        Case("512", streams=512, requests=1536, max_tokens=128),
        Case("2048", streams=2048, requests=4096, max_tokens=128),
        Case("4096", streams=4096, requests=4096, max_tokens=64),
        Case("64-together", streams=64, requests=256, max_tokens=128, ends_together=True),
        Case("256-together", streams=256, requests=768, max_tokens=128, ends_together=True),
        Case("512-together", streams=512, requests=1536, max_tokens=128, ends_together=True),
        Case("1024-together", streams=1024, requests=3072, max_tokens=128, ends_together=True),
        Case("64-https", streams=64, requests=256, max_tokens=128, tls=True),
        Case("512-https", streams=512, requests=1536, max_tokens=128, tls=True),
        # One send per chunk costs the server more than reading costs a fast client, so the server is the bottleneck.
        Case("512-unpaced", streams=512, requests=2048, max_tokens=256, pace=_UNPACED),
        # With eight chunks per send the client is the bottleneck, and one read returns several chunks.
        Case("512-unpaced-x8", streams=512, requests=4096, max_tokens=256, pace=_UNPACED_BURST),
    )
}
