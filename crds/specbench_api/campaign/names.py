"""Names and labels of a campaign's runs.

A run is named `CAMPAIGN-HASH`, HASH being of what it measures and of nothing else: axes can be renamed, reordered and
extended, and every run that measures what it measured before keeps its name. Rounds after the first add `-NN`.
"""

from __future__ import annotations

import base64
import hashlib
import re
import string

from specbench_api import GROUP
from specbench_api.plan.canonical import canonical_json, canonical_run
from specbench_api.spec.run import RunSpec

LABEL_CAMPAIGN = f"{GROUP}/campaign"
LABEL_CAMPAIGN_UID = f"{GROUP}/campaign-uid"
LABEL_ROUND = f"{GROUP}/round"
ANNOTATION_CELL = f"{GROUP}/cell"

HASH_LENGTH = 8
"""40 bits: of 256 runs, two share a name once in 34 million campaigns, and that is told."""
ROUND_NAMES = 36**2
"""Then names come again: the runs that had them are long deleted (runHistoryLimit), and results lie under a UID."""
_DIGITS = string.digits + string.ascii_lowercase


def run_hash(spec: RunSpec) -> str:
    """Of what a run measures: small letters and digits (base32)."""
    digest = hashlib.sha256(canonical_json(canonical_run(spec)).encode()).digest()
    return base64.b32encode(digest).decode().lower()[:HASH_LENGTH]


def run_name(campaign: str, spec: RunSpec, number: int) -> str:
    """Of the run of a round, counted from 1."""
    return f"{campaign}-{run_hash(spec)}{_suffix(number)}"


def may_be_named(campaign: str, name: str) -> bool:
    """Whether a name has the form of those that `run_name` gives to a campaign's runs, in whatever round."""
    form = f"{re.escape(campaign)}-[a-z2-7]{{{HASH_LENGTH}}}(-[{_DIGITS}]{{1,2}})?"
    return re.fullmatch(form, name) is not None


def _suffix(number: int) -> str:
    if number == 1:
        return ""
    high, low = divmod(number % ROUND_NAMES, len(_DIGITS))
    return f"-{_DIGITS[high] if high else ''}{_DIGITS[low]}"
