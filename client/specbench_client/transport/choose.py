"""Which transport an endpoint can be measured with."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

from specbench_client.transport.exchange import Transport
from specbench_client.transport.kernel_transport import KernelTransport


def transport_to(endpoint: str) -> AbstractAsyncContextManager[Transport]:
    """The kernel's stamps where the bytes are in the clear, our own behind TLS."""
    if not endpoint.startswith("https://"):
        return KernelTransport()
    from specbench_client.transport.aiohttp_transport import AiohttpTransport  # noqa: PLC0415 -- a worker seldom needs it

    return AiohttpTransport()
