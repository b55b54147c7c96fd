"""Removes this process's own secrets, and text with the form of a secret, from what engines and servers report."""

from __future__ import annotations

import os

from specbench_api.outcome.provenance import Fact
from specbench_api.plan.template_conflicts import TOKENS
from specbench_api.redaction import redact, redact_json
from specbench_api.spec.secret_refs import API_KEY_VARIABLE

SECRET_VARIABLES = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", API_KEY_VARIABLE, *TOKENS)
"""Environment variables with secrets that a client is given."""


def known_secrets() -> tuple[str, ...]:
    """The values of SECRET_VARIABLES in this process's environment, without the line break that a file may end with."""
    return tuple(value for name in SECRET_VARIABLES if (value := os.environ.get(name, "").strip()))


def api_key_header() -> dict[str, str]:
    """The header with the API key of running servers, from the environment; empty if there is no key."""
    key = os.environ.get(API_KEY_VARIABLE, "").strip()
    return {"Authorization": f"Bearer {key}"} if key else {}


def without_secrets(text: str) -> str:
    """Return the text without secrets; see `specbench_api.redaction`."""
    return redact(text, known_secrets())


def fact_without_secrets(fact: Fact) -> Fact:
    """Return a fact without secrets in its value or its reason. Commits and checksums are kept."""
    known = known_secrets()
    reason = None if fact.reason is None else redact(fact.reason, known, keep_hashes=True)
    return Fact(value=redact_json(fact.value, known), source=fact.source, reason=reason)
