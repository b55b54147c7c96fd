"""A further node of a simulated engine: it computes nothing, and lives as long as the node that serves.

Real engines on several nodes behave so: a worker waits for its leader, joins it, and is of no use without it. It looks
by a connection alone: a request, were it for health, might be one that the leader counts.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from urllib.parse import urlsplit

from specbench_client.simulator.errors import ConfigError

PERIOD_S = 1.0
TIMEOUT_S = 5.0


def follow(leader: str, say: Callable[[str], None], period_s: float = PERIOD_S) -> None:
    """Wait for the leader, for ever; return once it listens no more. Raises ConfigError for what is no address."""
    host, port = _address(leader)
    pause = threading.Event()
    say(f"waiting for the simulated engine at {leader}")
    while not _listens(host, port):
        pause.wait(period_s)
    say(f"joined the simulated engine at {leader}")
    while _listens(host, port):
        pause.wait(period_s)
    say(f"the simulated engine at {leader} is gone")


def _address(leader: str) -> tuple[str, int]:
    try:
        parts = urlsplit(leader)
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if not host or not port:
        raise ConfigError(f"--follow: {leader!r} is no address: give one like http://127.0.0.1:8000")
    return host, port


def _listens(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), timeout=TIMEOUT_S):
            return True
    except OSError:
        return False
