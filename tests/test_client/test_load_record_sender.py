"""Sending records to the main process."""

from __future__ import annotations

import asyncio
import pickle
import threading
from dataclasses import replace

import pytest

from specbench_client.load import worker as room
from specbench_client.load.worker import (
    BATCH_RECORDS,
    PipeSender,
    RecordBatch,
    RecordSender,
    WorkerReady,
    unpickle_record,
)
from specbench_testing.conversation_turns import blank_record


def ids(batch: RecordBatch) -> list[str]:
    records = [unpickle_record(one) for one in batch.pickled]
    return [record.request_id for record in records]


async def test_records_are_sent_in_batches_and_the_rest_at_the_end() -> None:
    sent: list[RecordBatch] = []
    async with RecordSender(sent.append) as sender:
        for number in range(BATCH_RECORDS + 2):
            sender.add(replace(blank_record(), request_id=str(number)))
        assert len(sent) == 1
    assert [len(batch.pickled) for batch in sent] == [BATCH_RECORDS, 2]
    assert [name for batch in sent for name in ids(batch)] == [str(number) for number in range(BATCH_RECORDS + 2)]


async def test_failed_request_is_sent_at_once_with_all_before_it() -> None:
    sent: list[RecordBatch] = []
    async with RecordSender(sent.append) as sender:
        sender.add(replace(blank_record(), request_id="good"))
        sender.add(replace(blank_record(), request_id="bad", error_class="reset"))
        assert [ids(batch) for batch in sent] == [["good", "bad"]]


async def test_few_records_are_sent_after_the_flush_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "FLUSH_INTERVAL_S", 0)
    sent: asyncio.Queue[RecordBatch] = asyncio.Queue()
    async with RecordSender(sent.put_nowait) as sender:
        sender.add(replace(blank_record(), request_id="one"))
        assert ids(await sent.get()) == ["one"]


def test_send_does_not_block_on_a_full_pipe() -> None:
    free, got = threading.Event(), []
    arrived = threading.Semaphore(0)

    class Full:
        def send_bytes(self, buf: bytes, /) -> None:
            free.wait()
            got.append(pickle.loads(buf))
            arrived.release()

    sender = PipeSender(Full())
    for _ in range(3):
        sender.send(WorkerReady())
    assert got == []
    free.set()
    for _ in range(3):
        arrived.acquire()
    assert got == [WorkerReady()] * 3


def test_closed_pipe_is_ignored() -> None:
    tried = threading.Event()

    class Closed:
        def send_bytes(self, buf: bytes, /) -> None:
            tried.set()
            raise BrokenPipeError

    PipeSender(Closed()).send(WorkerReady())
    assert tried.wait(60)
