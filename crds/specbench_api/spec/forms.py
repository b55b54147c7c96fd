"""What a pattern asks for, in words: a regular expression says what is refused, and no person what to write instead."""

from __future__ import annotations

from collections.abc import Mapping

from specbench_api.spec.kubernetes import DNS_LABEL, DNS_NAME, QUALIFIED_NAME

_ENDS = "with a letter or a digit at both ends"
_LABEL = f"at most 63 letters, digits, dashes, dots and underscores, {_ENDS}"

FORMS: Mapping[str, str] = {
    DNS_LABEL: f"lower-case letters, digits and dashes, {_ENDS}: my-name-1",
    DNS_NAME: f"lower-case letters, digits, dashes and dots, {_ENDS} and around each dot: my-name.example",
    QUALIFIED_NAME: "a domain, a slash and a word: nvidia.com/gpu",
    "^[a-z]([a-z0-9-]*[a-z0-9])?$": (
        "a lower-case letter first, then lower-case letters, digits and dashes, and no dash last: my-name-1"
    ),
    "^(Latest|[a-z0-9]([a-z0-9-]*[a-z0-9])?)$": "a UID, which is the last part of the results' address; or: Latest",
    "^[a-z0-9]([a-z0-9_-]*[a-z0-9])?$": f"lower-case letters, digits, dashes and underscores, {_ENDS}: my_name-1",
    "^([A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?)?$": f"the value of a label, nothing or {_LABEL}: gpu-pool",
    "^(([a-z0-9]([a-z0-9-]*[a-z0-9])?(\\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*/)?[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}"
    "[A-Za-z0-9])?)?$": f"the key of a taint: {_LABEL}, perhaps after a domain and a slash: example.com/gpu",
    "^([a-z0-9]([a-z0-9-]*[a-z0-9])?(\\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*/)?[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}"
    "[A-Za-z0-9])?$": f"the key of a label: {_LABEL}, perhaps after a domain and a slash: kubernetes.io/hostname",
    "^[A-Za-z0-9._-]+$": "the key of a Secret: letters, digits, dashes, dots and underscores",
    "^[0-9]+(\\.[0-9]+)?(m|k|Ki|M|Mi|G|Gi|T|Ti)?$": "a number, perhaps with a unit: 4, 500m, 64Gi",
    "^[^/]": "a folder inside the volume, without a slash first: models/llama",
    "^[A-Za-z_][A-Za-z0-9_]*$": "letters, digits and underscores, and no digit first: MY_VARIABLE",
    "^\\S(.*\\S)?$": "no space at its ends",
    "^[A-Za-z0-9][A-Za-z0-9._-]*$": "letters, digits, dots, dashes and underscores, a letter or a digit first: main",
    "^[A-Za-z0-9][A-Za-z0-9_.,-]*$": "one word of letters, digits and _ . , -, a letter or a digit first",
    "^https?://[^/\\s?#@]+(/[^\\s?#]*)?$": "an address without user, query or fragment: http://engine:8000",
    "^[A-Za-z0-9][A-Za-z0-9._:/@+-]*$": "a reference of an image: registry.example/team/engine:1.0",
    "^([A-Za-z0-9!_.*'()-]+(/[A-Za-z0-9!_.*'()-]+)*)?$": (
        "parts of letters, digits and ! _ . * ' ( ) -, with single slashes between them and none at the ends: team/a"
    ),
    "^(https?://[^/\\s]+(/[^\\s]*)?)?$": "an address, with http:// or https:// first: http://s3:9000",
    "^[A-Za-z0-9_-]+$": "letters, digits, dashes and underscores: us-east-1",
    "^(s3|hf|https)://.+": "an address of s3, hf or https: s3://models/llama",
    "^[A-Za-z][A-Za-z0-9_]*(\\.[A-Za-z0-9_][A-Za-z0-9_-]*|\\[[^\\[\\]]+\\])*$": (
        "a field below the run's spec: engine.kind, workloads[0].sampling.temperature"
    ),
    "^[A-Za-z][A-Za-z0-9_-]*$": "a letter first, then letters, digits, dashes and underscores",
    "^([A-Za-z0-9]([A-Za-z0-9_.:/+-]*[A-Za-z0-9])?)?$": f"letters, digits and any of _.:/+-, {_ENDS}: 2026-01-02",
    "^([0-9A-Za-z*/,-]+( +[0-9A-Za-z*/,-]+){4}|@(hourly|daily|weekly|monthly|yearly))?$": (
        "minute hour day month weekday, such as '0 3 * * mon-fri'; or @hourly, @daily, @weekly, @monthly, @yearly"
    ),
    "^[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*$": "a time zone as the IANA database has it: Europe/Berlin",
    "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$": "a word in CamelCase",
}
"""By the pattern. A test holds every pattern of the resources to have its words here."""
