"""The address of an external endpoint: `flaw_of` is at least as strict as the API server's pattern."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from specbench_api.spec.engine import ADDRESS, flaw_of

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
