"""Names and values in the form that Kubernetes requires, to reject an invalid one before a child is created."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated

from pydantic import Field

_DNS_LABEL = "[a-z0-9]([a-z0-9-]*[a-z0-9])?"
_DNS_NAME = rf"{_DNS_LABEL}(\.{_DNS_LABEL})*"
_WORD = "[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?"
_SHORT_WORD = "[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
_LABEL_KEY = f"({_DNS_NAME}/)?{_SHORT_WORD}"

DOMAIN_MAX = 253
"""Maximum number of characters before the slash of a label key."""
DNS_LABEL = f"^{_DNS_LABEL}$"
"""Pattern of a namespace's name."""
DNS_NAME = f"^{_DNS_NAME}$"
"""Pattern of most object names: DNS labels separated by dots."""
QUALIFIED_NAME = f"^{_DNS_NAME}/{_SHORT_WORD}$"
"""Pattern of an extended resource: a domain, a slash, and at most 63 characters."""
HUB_NAME_OR_PATH = r"^(/[^\s=,]+|[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)?)$"
"""Pattern of a repository on the hub, or an absolute path. The model that uses it must also reject `..`."""

ObjectName = Annotated[str, Field(min_length=1, max_length=253, pattern=DNS_NAME)]
QueueName = Annotated[str, Field(min_length=1, max_length=63, pattern=DNS_NAME)]
"""An object name that is used as a label value, which limits its length to 63."""
LabelValue = Annotated[str, Field(max_length=63, pattern=f"^({_WORD})?$")]
SecretKey = Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[A-Za-z0-9._-]+$")]
SubPath = Annotated[str, Field(min_length=1, max_length=1024, pattern=r"^[^/]")]
"""A relative folder inside a volume. The model that uses it must also reject `..` with `leads_out`."""
TaintKey = Annotated[str, Field(max_length=317, pattern=f"^({_LABEL_KEY})?$")]


LEADS_OUT = "(^|/)[.][.](/|$)"
"""Pattern of a path with a `..` component."""


def leads_out(path: str | None) -> bool:
    """Return whether the path has a `..` component; Kubernetes refuses to mount such a path."""
    return path is not None and ".." in path.split("/")


def is_label_key(text: str) -> bool:
    """Return whether the text is a valid label key: at most 63 characters, optionally after a domain and a slash."""
    domain, _, _ = text.rpartition("/")
    return len(domain) <= DOMAIN_MAX and re.fullmatch(_LABEL_KEY, text) is not None


# Descriptions of the patterns for error messages: a regular expression does not show the user what to write.

_ENDS = "with a letter or a digit at both ends"
_LABEL = f"at most 63 letters, digits, dashes, dots and underscores, {_ENDS}"

PATTERN_DESCRIPTIONS: Mapping[str, str] = {
    DNS_LABEL: f"lower-case letters, digits and dashes, {_ENDS}: my-name-1",
    DNS_NAME: f"lower-case letters, digits, dashes and dots, {_ENDS} and around each dot: my-name.example",
    QUALIFIED_NAME: "a domain, a slash and a word: nvidia.com/gpu",
    "^[a-z]([a-z0-9-]*[a-z0-9])?$": (
        "lower-case letters, digits and dashes, starting with a letter and not ending with a dash: my-name-1"
    ),
    "^(Latest|[a-z0-9]([a-z0-9-]*[a-z0-9])?)$": "a UID, which is the last component of the results' URI, or Latest",
    "^[a-z0-9]([a-z0-9_-]*[a-z0-9])?$": f"lower-case letters, digits, dashes and underscores, {_ENDS}: my_name-1",
    "^([A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?)?$": f"a label value, empty or {_LABEL}: gpu-pool",
    "^(([a-z0-9]([a-z0-9-]*[a-z0-9])?(\\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*/)?[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}"
    "[A-Za-z0-9])?)?$": f"a taint key: {_LABEL}, optionally after a domain and a slash: example.com/gpu",
    "^[A-Za-z0-9._-]+$": "a key of a Secret: letters, digits, dashes, dots and underscores",
    "^[0-9]+(\\.[0-9]+)?(m|k|Ki|M|Mi|G|Gi|T|Ti)?$": "a number with an optional unit: 4, 500m, 64Gi",
    HUB_NAME_OR_PATH: (
        "a repository on the hub (acme/sql-lora), or a path that begins with / without spaces, commas and equals signs"
    ),
    "^[^/]": "a folder inside the volume, without a leading slash: models/llama",
    "^[A-Za-z_][A-Za-z0-9_]*$": "letters, digits and underscores, not starting with a digit: MY_VARIABLE",
    "^\\S(.*\\S)?$": "no spaces at either end",
    "\\S": "more than spaces",
    "^[A-Za-z0-9][A-Za-z0-9._-]*$": "letters, digits, dots, dashes and underscores, no punctuation first: main",
    "^[A-Za-z0-9][A-Za-z0-9_.,-]*$": "letters, digits and _ . , -, starting with a letter or digit",
    "^https?://[^/\\s?#@]+(/[^\\s?#]*)?(\\?api-version=[A-Za-z0-9._-]+)?$": (
        "a URL without user, query (except ?api-version=…) or fragment: http://engine:8000"
    ),
    "^[A-Za-z0-9][A-Za-z0-9._:/@+-]*$": "an image reference: registry.example/team/engine:1.0",
    "^([A-Za-z0-9!_.*'()-]+(/[A-Za-z0-9!_.*'()-]+)*)?$": (
        "letters, digits and ! _ . * ' ( ) -, in parts separated by single slashes, no slash at either end: team/a"
    ),
    "^(https?://[A-Za-z0-9._:\\[\\]-]+(/[^\\s?#]*)?)?$": (
        "a URL that begins with http:// or https://, without user, query or fragment, and with a host of ASCII"
        " characters: http://s3:9000"
    ),
    "^/[^:]+$": "an absolute path without colons: /etc/nccl",
    "^[A-Za-z0-9_-]+$": "letters, digits, dashes and underscores: us-east-1",
    "^(s3|hf|https)://.+": "a URI of scheme s3, hf or https: s3://models/llama",
    "^[A-Za-z][A-Za-z0-9_]*(\\.[A-Za-z0-9_][A-Za-z0-9_-]*|\\[[^\\[\\]]+\\])*$": (
        "a field of the run's spec: engine.kind, workloads[0].sampling.temperature"
    ),
    "^[A-Za-z][A-Za-z0-9_-]*$": "letters, digits, dashes and underscores, starting with a letter",
    "^([A-Za-z0-9]([A-Za-z0-9_.:/+-]*[A-Za-z0-9])?)?$": f"letters, digits and any of _.:/+-, {_ENDS}: 2026-01-02",
    "^([0-9A-Za-z*/,-]+( +[0-9A-Za-z*/,-]+){4}|@(hourly|daily|weekly|monthly|yearly))?$": (
        "minute hour day month weekday, such as '0 3 * * mon-fri'; or @hourly, @daily, @weekly, @monthly, @yearly"
    ),
    "^[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*$": "a time zone name of the IANA database: Europe/Berlin",
    "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$": "a word in CamelCase",
}
"""What a valid value looks like, by pattern. A test checks that every pattern of the resources has an entry."""
