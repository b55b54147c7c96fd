"""A further node of a simulated engine: it waits for the leader, and does not outlive it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from click.testing import CliRunner

from specbench_client.cli.simulate import simulate
from specbench_client.simulator import ConfigError, follow_leader
from specbench_testing.ports import free_port


@contextmanager
def leader(port: int) -> Iterator[None]:
    with socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(("127.0.0.1", port))
        listening.listen()
        yield


def test_a_follower_waits_joins_and_ends_with_its_leader() -> None:
    port = free_port()
    said: list[str] = []
    told = threading.Condition()

    def say(line: str) -> None:
        with told:
            said.append(line.partition(" the ")[0])
            told.notify_all()

    thread = threading.Thread(target=follow_leader, args=(f"http://127.0.0.1:{port}", say, 0.01))
    thread.start()
    with told:
        assert told.wait_for(lambda: said == ["waiting for"], 60)
    with leader(port), told:
        assert told.wait_for(lambda: said == ["waiting for", "joined"], 60)
    thread.join(60)
    assert not thread.is_alive()
    assert len(said) == 3


@pytest.mark.parametrize("address", ["", "127.0.0.1", "http://127.0.0.1", "http://x:port", "http://:80"])
def test_what_is_no_address_is_refused_with_one_that_is(address: str) -> None:
    with pytest.raises(ConfigError, match=r"give one such as http://127\.0\.0\.1:8000"):
        follow_leader(address, lambda _line: None)


def test_the_command_refuses_it_as_bad_input() -> None:
    done = CliRunner().invoke(simulate, ["--follow", "nowhere"])
    assert done.exit_code == 2
    assert "give one such as" in done.output
