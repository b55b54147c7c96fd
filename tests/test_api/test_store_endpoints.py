"""Which addresses an S3 endpoint may have, and that documents of others are parsed with bounded effort."""

from __future__ import annotations

import json
import re
import tracemalloc
from dataclasses import dataclass, replace
from ipaddress import IPv4Address
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from specbench_api.errors import InvalidSpec
from specbench_api.outcome.status_document import ARMS_BYTES, StatusDocument
from specbench_api.plan.expansion import expand
from specbench_api.spec.engine import ADDRESS, flaw_of
from specbench_api.spec.parsing import parse_run
from specbench_api.spec.store_endpoints import (
    LOCAL_IPV4,
    METADATA_ADDRESSES,
    PLAIN_IPV4,
    AddressRule,
    StoreAccess,
    refused_address,
    refused_endpoint,
    store_access,
)
from specbench_client.stored_runs.status_builder import status_document
from specbench_testing.operator_builders import operator_run, summary_of


@pytest.mark.parametrize(
    ("address", "no_metadata", "no_local"),
    [
        ("10.0.0.7", None, None),
        ("192.168.1.1", None, None),
        ("2001:db8::1", None, None),
        ("fd00::1", None, None),
        ("127.0.0.1", None, "loopback"),
        ("127.255.0.9", None, "loopback"),
        ("::1", None, "loopback"),
        ("::ffff:127.0.0.1", None, "loopback"),
        ("169.254.1.1", None, "link-local"),
        ("fe80::1%eth0", None, "link-local"),
        ("0.0.0.0", None, "unspecified"),
        ("0.1.2.3", None, "unspecified"),
        ("::", None, "unspecified"),
        ("224.0.0.1", None, "multicast"),
        ("255.255.255.255", None, "reserved"),
        ("169.254.169.254", "metadata", "metadata"),
        ("169.254.170.23", "metadata", "metadata"),
        ("fd00:ec2::254", "metadata", "metadata"),
        ("::ffff:169.254.169.254", "metadata", "metadata"),
        ("fd00:c1:0::a9fe:a9fe", "metadata", "metadata"),
        ("64:ff9b::a9fe:a9fe", "metadata", "metadata"),
        ("64:ff9b:1::a9fe:a9fe", "metadata", "metadata"),
        ("64:ff9b:1:7::7f00:1", None, "loopback"),
        ("64:ff9b:1:a9fe:a9:fe00:808:808", None, "local-use NAT64"),
        ("64:ff9b:1::8.8.8.8", None, "local-use NAT64"),
        ("64:ff9b:2::a9fe:a9fe", None, None),
        ("::ffff:0:a9fe:a9fe", "metadata", "metadata"),
        ("::ffff:0:127.0.0.1", None, "loopback"),
        ("::ffff:0:8.8.8.8", None, None),
        ("::fffe:0:a9fe:a9fe", None, None),
        ("2002:a9fe:a9fe::1", "metadata", "metadata"),
        ("168.63.129.16", "metadata", "metadata"),
        ("not an address", "not an IP address", "not an IP address"),
    ],
)
def test_refused_addresses_by_rule(address: str, no_metadata: str | None, no_local: str | None) -> None:
    assert refused_address(address, AddressRule.ANY) is None
    for rule, expected in ((AddressRule.NO_METADATA, no_metadata), (AddressRule.NO_LOCAL, no_local)):
        found = refused_address(address, rule)
        assert (found is None) == (expected is None), found
        assert (expected or "") in (found or "")


@pytest.mark.parametrize(
    ("endpoint", "refused"),
    [
        ("", False),
        ("http://minio:9000", False),
        ("https://s3.example.com/base", False),
        ("http://10.0.0.7", False),
        ("http://localhost:9000", True),
        ("http://LOCALHOST.:9000", True),
        ("http://a.localhost", True),
        ("http://[::1]:9000", True),
        ("http://[fe80::1%25eth0]", True),
        ("http://169.254.169.254/latest", True),
        ("http://2130706433", True),
        ("http://0x7f.1", True),
        ("http://0177.0.0.1", True),
        ("http://127.1", True),
        ("http://127.0.0.1.", True),
        ("http://[::ffff:7f00:1]", True),
        ("http://1.example", False),
        ("http://[", True),
    ],
)
def test_an_endpoint_that_is_a_local_address_is_refused_without_resolving(endpoint: str, refused: bool) -> None:
    assert (refused_endpoint(endpoint, AddressRule.NO_LOCAL) is not None) == refused


@given(st.ip_addresses(v=4))
def test_the_pattern_of_local_addresses_matches_those_that_are_refused(address: IPv4Address) -> None:
    text = str(address)
    assert re.fullmatch(PLAIN_IPV4, text)
    refusal = refused_address(text, AddressRule.NO_LOCAL)
    is_local = refusal is not None and text not in METADATA_ADDRESSES
    assert (re.fullmatch(LOCAL_IPV4, text) is not None) == (is_local or address.is_link_local)


@pytest.mark.parametrize(
    "endpoint", ["http://me:pw@minio:9000", "http://minio?x=1", "http://minio/#a", "http://minio/a?b", "ftp://minio"]
)
def test_an_endpoint_has_no_user_query_or_fragment(endpoint: str) -> None:
    with pytest.raises(InvalidSpec) as caught:
        parse_run(operator_run({"spec.results.s3": {"bucket": "results", "endpoint": endpoint}}))
    assert [problem.path for problem in caught.value.problems] == ["spec.results.s3.endpoint"]


@dataclass(frozen=True)
class Row:
    """A row of the fence."""

    endpoint: str
    bucket: str = "*"
    operator_identity: bool = False


REFUSED = StoreAccess(allowed=False, operator_identity=False, addresses=AddressRule.NO_LOCAL)
LITERAL = StoreAccess(operator_identity=False, addresses=AddressRule.NO_METADATA)
WILDCARD = StoreAccess(operator_identity=False, addresses=AddressRule.NO_LOCAL)


@pytest.mark.parametrize(
    ("rows", "endpoint", "access"),
    [
        ([], "", REFUSED),
        ([Row("")], "", LITERAL),
        ([Row("")], "http://minio:9000", REFUSED),
        ([Row("*")], "http://minio:9000", WILDCARD),
        ([Row("*")], "", WILDCARD),
        ([Row("http://minio:9000")], "http://minio:9000/", REFUSED),
        ([Row("http://minio:9000")], "http://MinIO:9000", REFUSED),
        ([Row("http://minio:9000"), Row("*")], "http://minio:9000", LITERAL),
        ([Row("https://*.example.com")], "https://s3.example.com", WILDCARD),
        ([Row("https://*.example.com")], "https://evil.test/.example.com", REFUSED),
        ([Row("https://*.example.com")], "https://s3.example.com/base", REFUSED),
        ([Row("https://s3.example.com/*")], "https://s3.example.com/base", WILDCARD),
        ([Row("https://s3.example.com")], "https://s3xexample.com", REFUSED),
        ([Row("", "team-*")], "", REFUSED),
        ([Row("", "res*")], "", LITERAL),
        ([Row("", "res*", operator_identity=True)], "", replace(LITERAL, operator_identity=True)),
        ([Row("", "other", operator_identity=True), Row("")], "", LITERAL),
    ],
)
def test_the_rows_of_the_fence_decide_about_a_store(rows: list[Row], endpoint: str, access: StoreAccess) -> None:
    assert store_access(rows, endpoint, "results") == access


PLAN = expand(parse_run(operator_run()))
STATUS = json.loads(status_document(summary_of(PLAN, 2), PLAN).to_json())
COUNT = 50_000


@pytest.mark.parametrize(
    "document",
    [
        {**STATUS, "arms": [1] * COUNT},
        {**STATUS, "arms": [{}] * COUNT},
        {f"k{number}": 1 for number in range(COUNT)},
        [[]] * COUNT,
        {**STATUS, "arms": [{**STATUS["arms"][0], "findings": ["x" * 65] * COUNT}]},
    ],
    ids=["numbers", "objects", "unknown keys", "lists", "findings"],
)
def test_a_document_with_many_errors_is_refused_with_little_memory(document: Any) -> None:
    data = json.dumps(document).encode()
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=r".") as caught:
            StatusDocument.from_untrusted_json(data)
        assert len(str(caught.value)) < 1_000
        assert tracemalloc.get_traced_memory()[1] < 40 * len(data) + 10_000_000
    finally:
        tracemalloc.stop()


DOCUMENT = json.dumps(STATUS)


@pytest.mark.parametrize(
    "data",
    [
        # The API server would refuse a status with a number that is not finite, again and again.
        *(DOCUMENT.replace("12.5", number).encode() for number in ("NaN", "Infinity", "-Infinity", "1e999")),
        b"[" * 1_000_000, b'{"a":' * 100_000, b"", b"\xff", b"[" + b"1," * 2_000_000 + b"1]",
    ],
    ids=lambda data: repr(data[-20:]),
)  # fmt: skip
def test_a_deep_invalid_or_long_document_is_refused(data: bytes) -> None:
    assert StatusDocument.from_untrusted_json(DOCUMENT.encode()) == StatusDocument.from_json(DOCUMENT)
    with pytest.raises(ValueError, match=r"."):
        StatusDocument.from_untrusted_json(data)


ROW = STATUS["arms"][1]


@pytest.mark.parametrize(
    "changes",
    [
        {"schemaVersion": "specbench.io/status/v0"},
        *({name: None} for name in ("uid", "planSha256", "created", "pointsMeasured", "pointsInvalid", "trustReason")),
        *({name: 7} for name in ("uid", "best", "recommendation", "headline", "trust", "trustReason", "arms")),
        *({name: "x" * 5000} for name in ("uid", "best", "recommendation", "headline", "created", "trustMessage")),
        *({name: value} for name in ("pointsMeasured", "pointsInvalid", "armsOmitted") for value in (-1, 2**53, 0.5)),
        {"uid": "../of-another"},
        {"planSha256": "0" * 63},
        {"trust": "Certain"},
        *({"trustReason": reason} for reason in ("", "two words", "1st", "a" * 129)),
        *({"arms": [{**ROW, "requests": count}]} for count in (-1, 10**30, "many", None)),
        {"arms": [{**ROW, "arm": "a" * 33}]},
        {"arms": [{**ROW, "findings": ["x"] * 33}]},
        {"arms": [{**ROW, "speedup": 1.5}]},
        {"arms": [{**ROW, "speedup": {"value": 1.5}}]},
        {"arms": [ROW] * (ARMS_BYTES // len(json.dumps(ROW)) + 100)},
        {"arms": [{**ROW, "workload": "<" * 32, "findings": ["<" * 64] * 32}] * 6},
        {"arms": [{}]},
    ],
    ids=lambda changes: next(f"{name}: {str(value)[:30]}" for name, value in changes.items()),
)
def test_a_status_document_with_a_wrong_value_is_refused(changes: dict[str, Any]) -> None:
    """It becomes part of a status, which the API server stores and every watcher of runs receives."""
    with pytest.raises(ValueError, match=r"."):
        StatusDocument.from_untrusted_json(json.dumps({**STATUS, **changes}).encode())


# The address of an external endpoint: `flaw_of` is at least as strict as the API server's pattern.


PARTS = st.lists(
    st.sampled_from(["http://", "HTTPS://", "ftp://", "me:pw@", "h", "[::1]", ":80", ":0", "/v1", "?", "#", " "])
)


@pytest.mark.draws
@given(PARTS.map("".join) | st.text(max_size=20))
@example("http://h\n")
@example("http://h:1/v1?")
@example("http://h:1/v1#")
@example("http://@h")
@example("HTTP://h")
def test_the_api_server_accepts_every_address_without_flaw(address: str) -> None:
    assert flaw_of(address) is not None or re.search(ADDRESS, address)


@pytest.mark.parametrize(
    "address", ["http://h", "https://h:443/", "http://[::1]:8000/v1", "http://127.0.0.1:65535/a/b"]
)
def test_valid_addresses_have_no_flaw(address: str) -> None:
    assert flaw_of(address) is None
