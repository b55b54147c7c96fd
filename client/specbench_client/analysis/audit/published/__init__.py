"""Tables that others published, as data with their source: numbers are facts. None is a reference to calibrate on."""

from __future__ import annotations

from importlib import resources

SUFFIX = ".json"


def names() -> list[str]:
    """Of the tables that are shipped."""
    files = (file.name for file in resources.files(__name__).iterdir())
    return sorted(name.removesuffix(SUFFIX) for name in files if name.endswith(SUFFIX))


def text_of(name: str) -> str:
    """A shipped table, as JSON for `reading`. `name`: one of `names`."""
    return resources.files(__name__).joinpath(name + SUFFIX).read_text(encoding="utf-8")
