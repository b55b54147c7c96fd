"""The HTTP server of the kubelet's probes: /healthz fails if a restart helps, /readyz until everything was listed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial

from aiohttp import web

Check = Callable[[], str | None]
"""Returns the problem, or None if there is none."""


async def serve_probes(port: int, checks: Mapping[str, Check]) -> None:
    """Answer the checks' paths until cancelled: 200, or 503 with the problem. Raises OSError if the port is in use."""
    app = web.Application()
    for path, check in checks.items():
        app.router.add_get(path, partial(_answer, check))
    # A log line for each probe of the kubelet would hide the others.
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, "0.0.0.0", port).start()  # noqa: S104 -- the kubelet connects to the pod's address
        await asyncio.Event().wait()
    finally:
        await runner.cleanup()


async def _answer(check: Check, _request: web.Request) -> web.Response:
    problem = check()
    return web.Response(text=problem or "ok", status=503 if problem else 200)
