"""Ports for test servers stay reserved from `free_port` on, before and between binds."""

from __future__ import annotations

import socket

import pytest

from specbench_testing.ports import LOCALHOST, free_port

COUNT = 200


def test_a_chosen_port_is_not_assigned_to_another_socket() -> None:
    """Not even with address or port sharing; all chosen ports differ."""
    chosen = {free_port() for _ in range(COUNT)}
    assert len(chosen) == COUNT
    for option in (None, socket.SO_REUSEADDR, socket.SO_REUSEPORT):
        for _ in range(COUNT):
            with socket.socket() as other:
                if option is not None:
                    other.setsockopt(socket.SOL_SOCKET, option, 1)
                other.bind((LOCALHOST, 0))
                assert other.getsockname()[1] not in chosen


@pytest.mark.parametrize("option", [socket.SO_REUSEADDR, socket.SO_REUSEPORT])
@pytest.mark.parametrize("address", [LOCALHOST, "0.0.0.0"])
def test_a_server_can_bind_a_chosen_port_repeatedly(option: int, address: str) -> None:
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
