"""Names and values as Kubernetes takes them: what it would refuse in a child is refused in the run."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import Field

_DNS_LABEL = "[a-z0-9]([a-z0-9-]*[a-z0-9])?"
_DNS_NAME = rf"{_DNS_LABEL}(\.{_DNS_LABEL})*"
_WORD = "[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?"
_SHORT_WORD = "[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
_LABEL_KEY = f"({_DNS_NAME}/)?{_SHORT_WORD}"

LABEL_KEY = f"^{_LABEL_KEY}$"
"""Pattern of a label's key."""
DOMAIN_MAX = 253
"""Characters before the slash of a label's key."""
DNS_LABEL = f"^{_DNS_LABEL}$"
"""Pattern of a namespace."""
DNS_NAME = f"^{_DNS_NAME}$"
"""Pattern of most objects' names: DNS labels with dots between them."""
QUALIFIED_NAME = f"^{_DNS_NAME}/{_SHORT_WORD}$"
"""Pattern of an extended resource: a domain, and a word of at most 63 characters."""

ObjectName = Annotated[str, Field(min_length=1, max_length=253, pattern=DNS_NAME)]
QueueName = Annotated[str, Field(min_length=1, max_length=63, pattern=DNS_NAME)]
"""An object's name that is given in a label."""
LabelValue = Annotated[str, Field(max_length=63, pattern=f"^({_WORD})?$")]
SecretKey = Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[A-Za-z0-9._-]+$")]
SubPath = Annotated[str, Field(min_length=1, max_length=1024, pattern=r"^[^/]")]
"""A folder inside a volume: relative, and without a way out of it, which the model that has it must check."""
TaintKey = Annotated[str, Field(max_length=317, pattern=f"^({_LABEL_KEY})?$")]


LEADS_OUT = "(^|/)[.][.](/|$)"
"""Pattern of a path that leads upwards."""


def leads_out(path: str | None) -> bool:
    """Whether a path has a part `..`, with which Kubernetes lets no volume be mounted."""
    return path is not None and ".." in path.split("/")


def is_label_key(text: str) -> bool:
    """Whether a label may have this key: a word of at most 63 characters, perhaps with a domain and a slash before."""
    domain, _, _ = text.rpartition("/")
    return len(domain) <= DOMAIN_MAX and re.fullmatch(_LABEL_KEY, text) is not None
