"""Records on their way to the main process."""

from __future__ import annotations

import asyncio
import pickle
import threading
from dataclasses import replace

import pytest

from specbench_client.load import outbox as room
from specbench_client.load.orders import Ready, Records
from specbench_client.load.outbox import BATCH, Outbox, Sender, unpacked
from specbench_testing.turns import blank


def ids(batch: Records) -> list[str]:
    records = [unpacked(one) for one in batch.pickled]
    return [record.request_id for record in records]


async def test_records_leave_in_batches_and_the_rest_at_the_end() -> None:
    sent: list[Records] = []
    async with Outbox(sent.append) as outbox:
        for number in range(BATCH + 2):
            outbox.add(replace(blank(), request_id=str(number)))
        assert len(sent) == 1
    assert [len(batch.pickled) for batch in sent] == [BATCH, 2]
    assert [name for batch in sent for name in ids(batch)] == [str(number) for number in range(BATCH + 2)]


async def test_a_failed_request_leaves_at_once_with_all_before_it() -> None:
    sent: list[Records] = []
    async with Outbox(sent.append) as outbox:
        outbox.add(replace(blank(), request_id="good"))
        outbox.add(replace(blank(), request_id="bad", error_class="reset"))
        assert [ids(batch) for batch in sent] == [["good", "bad"]]


async def test_few_records_do_not_wait_for_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "EVERY_S", 0)
    sent: asyncio.Queue[Records] = asyncio.Queue()
    async with Outbox(sent.put_nowait) as outbox:
        outbox.add(replace(blank(), request_id="one"))
        assert ids(await sent.get()) == ["one"]


def test_who_sends_never_waits_for_the_pipe() -> None:
    free, got = threading.Event(), []
    arrived = threading.Semaphore(0)

    class Full:
        def send_bytes(self, buf: bytes, /) -> None:
            free.wait()
            got.append(pickle.loads(buf))
            arrived.release()

    sender = Sender(Full())
    for _ in range(3):
        sender.send(Ready())
    assert got == []
    free.set()
    for _ in range(3):
        arrived.acquire()
    assert got == [Ready()] * 3


def test_a_pipe_that_is_closed_ends_the_sending_quietly() -> None:
    tried = threading.Event()

    class Closed:
        def send_bytes(self, buf: bytes, /) -> None:
            tried.set()
            raise BrokenPipeError

    Sender(Closed()).send(Ready())
    assert tried.wait(60)
