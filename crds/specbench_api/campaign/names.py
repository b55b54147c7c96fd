"""Names and labels of a campaign's runs.

A run is named `CAMPAIGN-HASH`, where HASH depends only on what it measures: when axes are renamed, reordered or
extended, every run that measures the same as before keeps its name. Rounds after the first append `-NN`.
"""

from __future__ import annotations

import base64
import hashlib
import re
import string

from specbench_api import GROUP
from specbench_api.plan.canonical import canonical_json, canonical_run
from specbench_api.spec.campaign import ROUND_LENGTH, RUN_HASH_LENGTH
from specbench_api.spec.run import RunSpec

LABEL_CAMPAIGN = f"{GROUP}/campaign"
LABEL_CAMPAIGN_UID = f"{GROUP}/campaign-uid"
LABEL_ROUND = f"{GROUP}/round"
ANNOTATION_COMBINATION = f"{GROUP}/combination"

ROUND_NAMES = 36**ROUND_LENGTH
"""Number of round suffixes before they repeat. By then runHistoryLimit has deleted the runs; results have UIDs."""
_DIGITS = string.digits + string.ascii_lowercase
_RUN_NAME = re.compile(f"(.+)-[a-z2-7]{{{RUN_HASH_LENGTH}}}(?:-[{_DIGITS}]{{1,{ROUND_LENGTH}}})?")


def run_hash(spec: RunSpec) -> str:
    """Return the hash of what a run measures, in lower-case base32."""
    digest = hashlib.sha256(canonical_json(canonical_run(spec)).encode()).digest()
    return base64.b32encode(digest).decode().lower()[:RUN_HASH_LENGTH]


def run_name(campaign: str, spec: RunSpec, number: int) -> str:
    """Return the name of a run in a round, counted from 1."""
    return f"{campaign}-{run_hash(spec)}{_suffix(number)}"


def campaign_in_name(name: str) -> str | None:
    """Return the only campaign whose runs may have this name, in any round; None if the name has another form."""
    found = _RUN_NAME.fullmatch(name)
    return found[1] if found else None


def _suffix(number: int) -> str:
    if number == 1:
        return ""
    high, low = divmod(number % ROUND_NAMES, len(_DIGITS))
    return f"-{_DIGITS[high] if high else ''}{_DIGITS[low]}"
