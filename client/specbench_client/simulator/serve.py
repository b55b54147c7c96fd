"""Runs the simulator in the foreground: one address, one signal to stop it."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web

from specbench_client.simulator.config import SimulatorConfig
from specbench_client.simulator.engine import Engine
from specbench_client.simulator.errors import ConfigError
from specbench_client.simulator.prompts import Categories, read_categories
from specbench_client.simulator.server import Server, choose_dialect
from specbench_client.simulator.truth import TruthFile

# Requests in flight may end within this time after SIGTERM; a stalled one never would. aiohttp waits it twice: before
# and after it cancels the handlers.
GRACE_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Place:
    """Where to listen and which files to read and write; port 0 takes a free one."""

    host: str = "127.0.0.1"
    port: int = 8000
    port_file: Path | None = None
    prompts: Path | None = None
    truth: Path | None = None
    dialect: str = "vllm"


def run_simulator(config: SimulatorConfig, place: Place, announce: Callable[[str], None]) -> None:
    """Serve until SIGTERM or SIGINT; ``announce`` gets the address. ConfigError where it cannot start."""
    asyncio.run(serve(config, place, announce))


async def serve(config: SimulatorConfig, place: Place, announce: Callable[[str], None]) -> None:
    """Serve on the running loop until a signal comes."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for one in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(one, stop.set)
    dialect = choose_dialect(place.dialect, config)
    categories = read_categories(place.prompts) if place.prompts else Categories()
    truth = TruthFile(place.truth) if place.truth else None
    server = Server(Engine(config, categories), dialect, truth)
    runner = web.AppRunner(
        server.application(), access_log=None, handler_cancellation=True, shutdown_timeout=GRACE_SECONDS
    )
    await runner.setup()
    try:
        port = await _listen(runner, place)
        if place.port_file:
            _write_whole(place.port_file, f"{port}\n")
        announce(f"http://{place.host}:{port}")
        await stop.wait()
    finally:
        await runner.cleanup()


async def _listen(runner: web.AppRunner, place: Place) -> int:
    try:
        await web.TCPSite(runner, place.host, place.port, backlog=1024).start()
    except OSError as error:
        raise ConfigError(f"cannot listen on {place.host}:{place.port}: {error}") from error
    port: int = runner.addresses[0][1]
    return port


def _write_whole(path: Path, text: str) -> None:
    """Write so that a reader who waits for the file never sees half of it."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)
