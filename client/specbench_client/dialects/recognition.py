"""Recognises the engine behind an address from its answers. Pure.

Each dialect declares an `EngineSignature`: what only its engine serves. `recognize` compares an endpoint's pages with
all signatures, and returns the dialects with evidence.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from specbench_api.spec.engine import DialectName
from specbench_client.dialects.openai_stream import model_rows
from specbench_client.transport.error_messages import replace_lone_surrogates

MODELS_PAGE = "/v1/models"
_ROUTES = re.compile(
    r"(?<![:/])(?<!/chat/completions)/+(?:v1(?:/+chat/+completions|(?:/+(?:completions|models))?/*))?$"
)


def engine_url(address: str) -> str:
    """Return an address without the route of an OpenAI client: /v1, /v1/chat/completions, and so on.

    The route is kept where it has no /v1 (Azure) or ends with a slash, as is the query.
    """
    path, mark, query = address.partition("?")
    return f"{_ROUTES.sub('', path)}{mark}{query}"


_LOOPBACK = ("localhost", "127.0.0.1", "::1")
DEFAULT_PORTS = {"http": 80, "https": 443}


def server_address(url: str) -> tuple[str, int | None, str]:
    """Return host, port and path, equal for different spellings of one server, such as localhost and 127.0.0.1."""
    parts = urlsplit(url)
    host, port = (parts.hostname or "").rstrip("."), parts.port or DEFAULT_PORTS.get(parts.scheme)
    with suppress(ValueError):  # a name
        host = str(getattr(ip_address(host), "ipv4_mapped", None) or ip_address(host))
    return "localhost" if host in _LOOPBACK else host, port, parts.path.rstrip("/")


@dataclass(frozen=True, slots=True)
class EndpointPages:
    """What an endpoint answered. `documents`: the JSON by path, `metrics`: the text of Prometheus pages by path.

    `server`: the header `Server`. Pages that were not requested, or not answered with status 200, are missing or None.
    """

    documents: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[str, str | None] = field(default_factory=dict)
    server: str | None = None

    @property
    def owners(self) -> frozenset[str]:
        """The values of `owned_by` in the list of models."""
        rows = model_rows(self.documents.get(MODELS_PAGE))
        return frozenset(row["owned_by"] for row in rows if isinstance(row.get("owned_by"), str))


@dataclass(frozen=True, slots=True)
class EngineSignature:
    """What only this engine serves."""

    engine: str
    """Name of the engine, for people."""
    owner: str
    """`owned_by` in its list of models."""
    series: tuple[str, ...]
    """Beginnings of lines of its metrics page."""
    metrics_path: str = "/metrics"
    keys: Mapping[str, str] = field(default_factory=dict)
    """Pages that only some engines have, and a key that only this engine's page has."""
    server: str | None = None
    """Its header `Server`, if it is its own."""
    drafter: Callable[[EndpointPages], str | None] = lambda _: None
    """Returns method and draft length, as far as the pages contain them."""
    report_acceptance: str = ""
    """How to let its answers report acceptance; empty if they always do."""

    def evidence(self, pages: EndpointPages) -> list[str]:
        """Return the facts that identify this engine; empty if there are none."""
        found = []
        if self.owner in pages.owners:
            found.append(f"GET {MODELS_PAGE}: owned_by is {self.owner}")
        for path, key in self.keys.items():
            document = pages.documents.get(path)
            if isinstance(document, dict) and key in document:
                found.append(f"GET {path} has {key}")
        lines = (pages.metrics.get(self.metrics_path) or "").splitlines()
        if prefix := next((one for one in self.series if any(line.startswith(one) for line in lines)), None):
            found.append(f"GET {self.metrics_path} has {prefix}…")
        if self.server is not None and pages.server == self.server:
            found.append(f"the header Server is {self.server}")
        return found


def recognize(pages: EndpointPages, signatures: Mapping[DialectName, EngineSignature]) -> dict[DialectName, list[str]]:
    """Return the evidence for each dialect that has some: none for an unknown server, several for a contradiction."""
    found = {name: signature.evidence(pages) for name, signature in signatures.items()}
    return {name: evidence for name, evidence in found.items() if evidence}


def candidates(
    owners: frozenset[str], signatures: Mapping[DialectName, EngineSignature]
) -> dict[DialectName, EngineSignature]:
    """Return the signatures whose pages are worth requesting: the owners' own, or all if no owner is known."""
    known = {name: signature for name, signature in signatures.items() if signature.owner in owners}
    return known or dict(signatures)


def base_models(listed: Any) -> list[str]:
    """Return the models that are served, each with its first name: adapters (rows with a parent) are left out.

    Names with the same `root` are names of one model.
    """
    by_root: dict[str, str] = {}
    for row in model_rows(listed):
        if row.get("parent") is None:
            by_root.setdefault(str(row.get("root") or row["id"]), row["id"])
    return [replace_lone_surrogates(name) for name in by_root.values()]
