"""Chooses the transport for an endpoint."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

from specbench_client.transport.exchange import Transport
from specbench_client.transport.kernel_transport import KernelTransport


def open_transport(endpoint: str) -> AbstractAsyncContextManager[Transport]:
    """Return a transport with kernel timestamps for http://, and one with timestamps of this process for https://."""
    if not endpoint.startswith("https://"):
        return KernelTransport()
    from specbench_client.transport.aiohttp_transport import AiohttpTransport  # noqa: PLC0415 -- rarely needed

    return AiohttpTransport()
