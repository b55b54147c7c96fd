"""The termination message, which the kubelet truncates at 4096 bytes."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from specbench_api.outcome.exit_codes import Exit
from specbench_api.outcome.termination_message import Termination

KUBELET_CUTS_AT_BYTES = 4096


@example(message="\x00" * 6000)
@example(message="é" * 6000)
@given(message=st.text(max_size=6000) | st.text('"\\\n\x00\x1f', max_size=6000) | st.text("😀", max_size=3000))
def test_the_message_always_fits_and_stays_json(message: str) -> None:
    line = Termination(code=4, reason="OOMKilled", message=message).to_message()
    assert len(line.encode()) <= KUBELET_CUTS_AT_BYTES
    read = Termination.from_json(line)
    assert (read.code, read.reason) == (4, "OOMKilled")
    assert message.startswith(read.message)


def test_a_long_message_uses_most_of_the_limit() -> None:
    line = Termination(code=4, reason="FirstRequestFailed", message="x" * 10_000).to_message()
    assert len(line.encode()) > KUBELET_CUTS_AT_BYTES * 0.9


def test_exit_codes_have_the_documented_names_and_values() -> None:
    assert [(code.name, code.value) for code in Exit] == [
        ("OK", 0),
        ("BUG", 1),
        ("BAD_INPUT", 2),
        ("UNTRUSTWORTHY", 3),
        ("ENGINE_FAILED", 4),
        ("RESULTS_NOT_STORED", 5),
        ("INTERRUPTED", 130),
    ]
