"""Removes this process's own secrets, and text with the form of a secret, from what engines and servers report."""

from __future__ import annotations

import os

from specbench_api.outcome.provenance import Fact
from specbench_api.plan.template_validation import TOKENS
from specbench_api.redaction import redact, redact_json

SECRET_VARIABLES = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "OPENAI_API_KEY", *TOKENS)
"""Environment variables with secrets that a client is given."""


def known_secrets() -> tuple[str, ...]:
    """The values of SECRET_VARIABLES in this process's environment."""
    return tuple(value for name in SECRET_VARIABLES if (value := os.environ.get(name)))


def without_secrets(text: str) -> str:
    """Return the text without secrets; see `specbench_api.redaction`."""
    return redact(text, known_secrets())


def fact_without_secrets(fact: Fact) -> Fact:
    """Return a fact without secrets in its value or its reason. Commits and checksums are kept."""
    known = known_secrets()
    reason = None if fact.reason is None else redact(fact.reason, known, keep_hashes=True)
    return Fact(value=redact_json(fact.value, known), source=fact.source, reason=reason)
