"""Connects the clients that send each load of a group together, see `load.client_link`.

Client 0 stores its address with a random token in the run's store, where only clients of the run can read it. It is the
address from which it reaches the engine. The others read it until they have joined; an address that an earlier client 0
left there is refused or answers with another token.
"""

from __future__ import annotations

import asyncio
import ipaddress
import secrets
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import Field, ValidationError

from specbench_api.api_model import ApiModel
from specbench_api.outcome.layout import client_address_key
from specbench_api.plan.plan import EngineGroup
from specbench_api.spec.conditions import EngineReason
from specbench_client.cooperative_tasks import first_failure
from specbench_client.drive.options import DriveOptions
from specbench_client.errors import EngineFailed
from specbench_client.load.client_link import ClientLink, ClientLost, LoadClients
from specbench_client.store.store import Store

JOIN_PAUSE_S = 0.5


class ClientAddress(ApiModel):
    """Where client 0 of a group accepts the others. Replaced by each new client 0."""

    schema_version: Literal["specbench.io/client-address/v1"] = "specbench.io/client-address/v1"
    """Version of this document."""
    host: str
    """IP address."""
    port: Annotated[int, Field(ge=1, le=65535)]
    """TCP port."""
    token: str
    """What a client must present; valid while this client 0 runs."""


@asynccontextmanager
async def join_clients(
    group: EngineGroup, count: int, endpoint: str, store: Store, options: DriveOptions
) -> AsyncIterator[LoadClients]:
    """Connect the `count` clients; when one of them fails, all others are interrupted with the same error.

    Raises ClientLost, EngineFailed, and whatever ended another client.
    """
    if count == 1:
        yield LoadClients()
        return
    link = ClientLink(options.client_index, count, options.peer_clock)
    try:
        async with first_failure(), asyncio.TaskGroup() as tasks:
            watching = tasks.create_task(_raise_failure(link))
            if link.index:
                await _find_client_0(link, group, store, options.join_within_s)
            else:
                await _accept_clients(link, group, endpoint, store, options.join_within_s)
            yield LoadClients(link.index, count, link)
            await link.finish()
            watching.cancel()
    except BaseException as error:
        await link.close(error)
        raise
    await link.close()


async def _raise_failure(link: ClientLink) -> None:
    raise await asyncio.shield(link.failure)  # Cancelling this task must not cancel the future.


async def _accept_clients(link: ClientLink, group: EngineGroup, endpoint: str, store: Store, within_s: float) -> None:
    host, token = await asyncio.to_thread(_own_address, endpoint), secrets.token_urlsafe(32)
    address = ClientAddress(host=host, port=await link.listen(host, token), token=token)
    await asyncio.to_thread(store.replace, client_address_key(group.index), address.to_json().encode())
    await link.joined(within_s)


async def _find_client_0(link: ClientLink, group: EngineGroup, store: Store, within_s: float) -> None:
    deadline_s, last = time.monotonic() + within_s, "it has stored no address"
    while time.monotonic() < deadline_s:
        address = await asyncio.to_thread(_stored_address, store, group)
        if address is not None:
            try:
                await link.connect(address.host, address.port, address.token)
            except (OSError, EOFError, ValueError) as error:
                last = f"{address.host} port {address.port}: {error!r}"
            else:
                return
        await asyncio.sleep(JOIN_PAUSE_S)
    raise ClientLost(
        f"client {link.index} could not join client 0 within {within_s:.0f} s ({last}): check that all {link.count}"
        " pods of the client's Job run and that they may connect to each other"
    )


def _stored_address(store: Store, group: EngineGroup) -> ClientAddress | None:
    """Return the stored address; None if there is none, or if it is of another version."""
    try:
        address = ClientAddress.from_untrusted_json(store.get(client_address_key(group.index)) or b"")
        ipaddress.ip_address(address.host)
    except (ValidationError, ValueError):
        return None
    return address


def _own_address(endpoint: str) -> str:
    """Return the IP address from which this machine reaches the engine. Raises EngineFailed if its name is unknown."""
    parts = urlsplit(endpoint)
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            parts.hostname, parts.port or 80, type=socket.SOCK_DGRAM
        )[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.connect(address)  # UDP: nothing is sent.
            return str(probe.getsockname()[0])
    except OSError as error:
        raise EngineFailed(f"{endpoint} cannot be reached: {error}", EngineReason.LOST) from error
