"""Conversion between datetimes and the timestamps of the Kubernetes API (RFC 3339, whole seconds, UTC)."""

from __future__ import annotations

from datetime import UTC, datetime


def format_timestamp(moment: datetime) -> str:
    """Format a datetime for a status, such as 2026-01-02T03:04:05Z."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_timestamp(text: str | None) -> datetime | None:
    """Parse a timestamp of a status or an annotation; None if there is none or if it is invalid.

    Status is a cache and annotations can be edited by hand, so an invalid value is ignored instead of being an error.
    """
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def optional_api_timestamp(text: str | None) -> datetime | None:
    """Parse a timestamp that the API server wrote; None if the field is not set."""
    return datetime.fromisoformat(text) if text else None


def api_timestamp(text: str) -> datetime:
    """Parse a timestamp that the API server wrote, of a field that is always set."""
    return datetime.fromisoformat(text)


def earliest(*seconds: float | None) -> float | None:
    """The shortest of these waits, in seconds; None if all are None."""
    return min((wait_s for wait_s in seconds if wait_s is not None), default=None)
