"""Servers of the tests close connections that arrive while they close."""

from __future__ import annotations

import asyncio
import gc
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from urllib.parse import urlsplit

import pytest
from aiohttp import web

from specbench_testing.closing_servers import ClosingTestServer
from specbench_testing.scripted_server import response, serve_scripts

PASSES = 8
"""More passes of the event loop than asyncio needs to accept a connection and to start its handler."""


@asynccontextmanager
async def aiohttp_server() -> AsyncIterator[str]:
    async with ClosingTestServer(web.Application()) as server:
        yield str(server.make_url(""))


@asynccontextmanager
async def scripted_server() -> AsyncIterator[str]:
    async with serve_scripts([response(200, b"")]) as (url, _):
        yield url


async def connect_before_close(serve: Callable[[], AbstractAsyncContextManager[str]], passes: int) -> None:
    """Connect, run the event loop for so many passes, and close the server."""
    async with serve() as url:
        address = urlsplit(url)
        with socket.create_connection((address.hostname, address.port)):
            for _ in range(passes):
                await asyncio.sleep(0)


@pytest.mark.parametrize("passes", range(PASSES))
@pytest.mark.parametrize("serve", [aiohttp_server, scripted_server])
def test_closed_server_leaves_no_connection_to_the_garbage_collector(
    serve: Callable[[], AbstractAsyncContextManager[str]], passes: int
) -> None:
    asyncio.run(connect_before_close(serve, passes))
    gc.collect()  # pytest reports an unclosed transport as a failure of this test
