"""One judge of an endpoint's address: never milder than the pattern that the API server asks."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from specbench_api.spec.address import ADDRESS, SECRET, flaw_of

PARTS = st.lists(
    st.sampled_from(["http://", "HTTPS://", "ftp://", "me:pw@", "h", "[::1]", ":80", ":0", "/v1", "?", "#", " "])
)


@given(PARTS.map("".join) | st.text(max_size=20))
@example("http://h\n")
@example("http://h:1/v1?")
@example("http://h:1/v1#")
@example("http://@h")
@example("HTTP://h")
def test_what_it_finds_sound_the_api_server_takes(address: str) -> None:
    assert flaw_of(address) is not None or re.search(ADDRESS, address)


@pytest.mark.parametrize(
    "address", ["http://h", "https://h:443/", "http://[::1]:8000/v1", "http://127.0.0.1:65535/a/b"]
)
def test_sound_addresses_have_no_flaw(address: str) -> None:
    assert flaw_of(address) is None


def test_a_password_is_known_by_itself_and_never_repeated() -> None:
    assert flaw_of("http://me:secret@host:80") is SECRET
    assert "secret" not in str(SECRET)
