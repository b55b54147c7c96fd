"""A follower node of a simulated engine: it waits for the leader and exits with it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from specbench_client.simulator import ConfigError, follow_leader
from specbench_testing.ports import free_port


@contextmanager
def listening_leader(port: int) -> Iterator[None]:
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind(("127.0.0.1", port))
        server.listen()
        yield


def test_follower_waits_joins_and_ends_with_its_leader() -> None:
    port = free_port()
    messages: list[str] = []
    condition = threading.Condition()

    def record_message(line: str) -> None:
        with condition:
            messages.append(line.partition(" the ")[0])
            condition.notify_all()

    thread = threading.Thread(target=follow_leader, args=(f"http://127.0.0.1:{port}", record_message, 0.01))
    thread.start()
    with condition:
        assert condition.wait_for(lambda: messages == ["waiting for"], 60)
    with listening_leader(port), condition:
        assert condition.wait_for(lambda: messages == ["waiting for", "joined"], 60)
    thread.join(60)
    assert not thread.is_alive()
    assert len(messages) == 3


@pytest.mark.parametrize("address", ["", "127.0.0.1", "http://127.0.0.1", "http://x:port", "http://:80"])
def test_invalid_leader_address_is_rejected_with_an_example(address: str) -> None:
    with pytest.raises(ConfigError, match=r"give one such as http://127\.0\.0\.1:8000"):
        follow_leader(address, lambda _line: None)
