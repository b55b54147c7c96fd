"""The address of an endpoint that already runs: one judge of it, in whichever words it is told.

The pattern is what the API server asks; `flaw_of` is no milder, and says of each fault what it is and what to give
instead. The value itself is not repeated: it may hold a password.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

ADDRESS = r"^https?://[^/\s?#@]+(/[^\s?#]*)?$"
"""Of an endpoint: no name, password or query, which would be kept with the results."""
SCHEMES = ("http", "https")
_EXAMPLE = "http://127.0.0.1:8000"


@dataclass(frozen=True)
class Flaw:
    """What is wrong with an address, and what to give instead."""

    what: str
    instead: str = f"give one such as {_EXAMPLE}"

    def __str__(self) -> str:
        return f"{self.what}: {self.instead}"


SECRET = Flaw("holds a name or a password, which would be kept with the results", "leave it out")
"""The one whose remedy depends on where the address is given."""


def flaw_of(address: str) -> Flaw | None:
    """Return the first flaw of an address, or None where it is sound."""
    return next(_flaws(address), None)


def _flaws(address: str) -> Iterator[Flaw]:
    """What comes later is only asked where nothing came before."""
    if "://" not in address:
        yield Flaw("does not say http:// or https://", f"give a whole URL, such as {_EXAMPLE}")
    try:
        url = urlsplit(address)
    except ValueError:  # a bracket that is not closed
        yield Flaw("is no URL")
        return
    if url.scheme not in SCHEMES:
        yield Flaw(f"begins with {url.scheme}://, where http:// or https:// is needed")
    if not url.hostname or re.search(r"\s", address):
        yield Flaw("names no host", f"give one, such as {_EXAMPLE}")
    if not _has_port(url):
        yield Flaw(
            "names a port that is none", f"give the engine's, a whole number from 1 to 65535, such as {_EXAMPLE}"
        )
    if "@" in url.netloc:
        yield SECRET
    if "?" in address or "#" in address:
        yield Flaw("goes on behind its path with ? or #", "give only where the engine's /v1 lies")
    if not re.search(ADDRESS, address):  # a scheme in capitals, for one
        yield Flaw("is not written as http:// or https://, a host, a port and a path")


def _has_port(url: SplitResult) -> bool:
    """Whether its port is one, or is left out."""
    try:
        return url.port is None or url.port > 0
    except ValueError:  # no number, or too large
        return False
