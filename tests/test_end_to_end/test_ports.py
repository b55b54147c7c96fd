"""Ports for servers of tests: one test's own from their choice on, before its server binds them and between two."""

from __future__ import annotations

import socket

import pytest

from specbench_testing.ports import LOCALHOST, free_port

ASKED = 200


def test_nobody_is_given_a_port_that_was_chosen() -> None:
    """Not even who allows sharing; of a thousand free ports or so that are asked for, each is another."""
    chosen = {free_port() for _ in range(ASKED)}
    assert len(chosen) == ASKED
    for option in (None, socket.SO_REUSEADDR, socket.SO_REUSEPORT):
        for _ in range(ASKED):
            with socket.socket() as asking:
                if option is not None:
                    asking.setsockopt(socket.SOL_SOCKET, option, 1)
                asking.bind((LOCALHOST, 0))
                assert asking.getsockname()[1] not in chosen


@pytest.mark.parametrize("option", [socket.SO_REUSEADDR, socket.SO_REUSEPORT])
@pytest.mark.parametrize("address", [LOCALHOST, "0.0.0.0"])
def test_a_server_binds_it_again_and_again_and_between_two_nobody_is_there(option: int, address: str) -> None:
    port = free_port()
    for _ in range(2):
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((LOCALHOST, port), timeout=10)
        with socket.socket() as server:
            server.setsockopt(socket.SOL_SOCKET, option, 1)
            server.bind((address, port))
            server.listen()
            with socket.create_connection((LOCALHOST, port), timeout=10) as client:
                server.accept()[0].close()
                assert client.recv(1) == b""
