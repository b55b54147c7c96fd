"""How long to wait before a request that failed is sent again: what the server asks for, and the bounds of it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

RETRY_AFTER_MAX_S = 60.0
"""Longest time that is waited, in all, because a server asks for it."""


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Return how long the header Retry-After asks to wait; None without one. Its names are in lower case.

    Rate limiters also send fractions of a second, which the standard does not have, and Azure milliseconds in headers
    of their own.
    """
    for name in ("retry-after-ms", "x-ms-retry-after-ms"):
        if (milliseconds := headers.get(name, "").strip()).isdecimal():
            return int(milliseconds) / 1e3
    given = headers.get("retry-after", "")
    if re.fullmatch(r"\s*[0-9]+(\.[0-9]+)?\s*", given):
        return float(given)
    try:
        moment = parsedate_to_datetime(given)
    except ValueError:  # no date
        return None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)  # The form of asctime has no time zone.
    return max((moment - datetime.now(UTC)).total_seconds(), 0.0)


def pause_before_retry_s(asked_s: float | None, own_s: float, waited_s: float, most_s: float) -> float | None:
    """Return how long to wait before a failed request is sent again; None: it has been waited long enough.

    `asked_s`: what the server asks for (Retry-After), up to RETRY_AFTER_MAX_S in all. `own_s`: the pause if it asks for
    nothing or less. `waited_s`: since the first try, which is at most `most_s` if the server asks for nothing.
    """
    if asked_s is None:
        return None if waited_s >= most_s else own_s
    return None if waited_s + asked_s > max(most_s, RETRY_AFTER_MAX_S) else max(asked_s, own_s)
