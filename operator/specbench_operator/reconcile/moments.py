"""Times as status has them (RFC 3339, whole seconds, UTC), and back."""

from __future__ import annotations

from datetime import UTC, datetime


def to_text(moment: datetime) -> str:
    """2026-01-02T03:04:05Z."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def whole(moment: datetime) -> datetime:
    """The moment as `to_text` keeps it."""
    return moment.replace(microsecond=0)


def from_text(text: str | None) -> datetime | None:
    """The moment, or None for what is none: status is a hint, and a hint that cannot be read is no hint."""
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
