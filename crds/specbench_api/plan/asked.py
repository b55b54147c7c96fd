"""A gate's digest: by it an answer is known to be of this very gate, however often the gate was changed."""

from __future__ import annotations

from specbench_api.plan.canonical import digest
from specbench_api.spec.gate import Gate


def asked_digest(gate: Gate) -> str:
    """SHA-256 of what is asked, in hex. Defaults count as if they were written out."""
    return digest(gate.to_dict())
