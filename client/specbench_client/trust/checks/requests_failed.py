"""Requests that failed are not in the figures: what is left may be the easy ones."""

from __future__ import annotations

from collections.abc import Sequence

from specbench_api.outcome.finding import Severity
from specbench_client.trust.check import Check
from specbench_client.trust.evidence import PointEvidence, Seen

SHARE = 0.01


def _look(evidence: PointEvidence) -> Sequence[Seen]:
    tried = evidence.tried
    failed = tried[~tried["ok"].to_numpy(bool)]
    if failed.empty:
        return []
    share = len(failed) / len(tried)
    classes = failed["error_class"].value_counts()
    kinds = ", ".join(f"{count} {name}" for name, count in classes.items())
    skipped = len(evidence.rows) - len(tried)
    message = f"{len(failed)} of {len(tried)} requests failed ({kinds})"
    message += f", and {skipped} later turns were not asked" if skipped else ""
    severity = Severity.INVALID if share > SHARE else Severity.NOTE
    return [Seen(severity, message, value=share, threshold=SHARE)]


CHECK: Check[PointEvidence] = Check(
    name="RequestsFailed",
    severities=(Severity.INVALID, Severity.NOTE),
    says="Requests failed.",
    threshold=f"Invalid above {SHARE:.0%} of the requests that were tried; a Note below",
    argument=(
        "Failed requests leave both sides of a comparison, but they are seldom the typical ones; from 1 % on the 99th"
        " percentile is made of requests that are not there."
    ),
    remedy="Read the error in the records and the engine's log; lower the load or mend the engine.",
    look=_look,
)
