"""Worker processes against a simulator in this process."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from specbench_api.spec.answers import Answers
from specbench_api.spec.engine import Engine, EngineKind
from specbench_api.spec.workload import Output, Sampling
from specbench_client.documents.record import Record, RecordPhase
from specbench_client.errors import BadInput
from specbench_client.load.turns import RequestConfig
from specbench_client.load.worker_pool import WorkerLost, WorkerPool
from specbench_client.load.worker_shares import WorkerLoad, closed_loop_load, open_loop_load
from specbench_client.simulator.config import SimulatorConfig
from specbench_client.workload.row_parsing import Prompt
from specbench_testing.conversation_turns import row
from specbench_testing.simulated_groups import RunningSimulator, simulator

pytestmark = pytest.mark.process

MS = 1_000_000
SLOW = SimulatorConfig(time_scale=1)  # a request takes 1/16 s, long enough to act while it runs


def prompts(count: int, turns: int = 1) -> list[Prompt]:
    texts = [[f"Tell me about {number}, {turn}" for turn in range(turns)] for number in range(count)]
    return [row(f"p{number}", *each) for number, each in enumerate(texts)]


def request_config(engine: RunningSimulator, **changed: object) -> RequestConfig:
    given = {
        "endpoint": engine.url,
        "engine": Engine(kind=EngineKind.SIMULATOR),
        "model": "simulated",
        "sampling": Sampling(),
        "output": Output(max_tokens=12),
        "repeat": 0,
        "started_ns": 0,
        "drafting": False,
        "request_prefix": "r",
    }
    return RequestConfig(**{**given, **changed})  # type: ignore[arg-type]


class Log:
    """Collects records; `until` waits for a number of them."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self._news = asyncio.Condition()

    async def take(self, records: Sequence[Record]) -> None:
        async with self._news:
            self.records += records
            self._news.notify_all()

    async def until(self, number: int) -> None:
        async with asyncio.timeout(60), self._news:
            await self._news.wait_for(lambda: len(self.records) >= number)


async def drive(
    pool: WorkerPool,
    engine: RunningSimulator,
    load: WorkerLoad,
    rows: Sequence[Prompt],
    phase: RecordPhase | None = None,
) -> list[Record]:
    log = Log()
    await pool.prepare(load, request_config(engine), rows, phase)
    await pool.run(load, log.take)
    return log.records


async def await_exit(pid: int) -> None:
    """Wait until the process has ended."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    with os.fdopen(handle, "rb"):
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        assert await asyncio.to_thread(poll.poll, 120_000), f"process {pid} still runs"


START = """
import asyncio
from specbench_client.load.worker_pool import WorkerPool

async def main():
    async with WorkerPool(1) as pool:
        print(pool._context.get_start_method())

if __name__ == "__main__":
    asyncio.run(main())
"""


@pytest.mark.parametrize(("length", "method"), [(75, "forkserver"), (76, "spawn"), (200, "spawn")])
def test_workers_start_where_the_temporary_folder_is_too_deep_for_a_socket(
    tmp_path: Path, length: int, method: str
) -> None:
    """A socket's path has at most 107 bytes."""
    script = tmp_path / "start.py"
    script.write_text(START)
    with tempfile.TemporaryDirectory(dir="/tmp") as short:
        deep = Path(f"{short}/{'x' * (length - len(short) - 1)}")
        deep.mkdir()
        environment = {**os.environ, "TMPDIR": str(deep)}
        done = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == f"{method}\n"


async def test_two_workers_send_every_request_once_and_return_all_records(tmp_path: Path) -> None:
    async with simulator(tmp_path / "truth.jsonl", SLOW) as engine, WorkerPool(2) as pool:
        log, load = Log(), closed_loop_load(streams=5, workers=2, conversations=24)
        await pool.prepare(load, request_config(engine), prompts(10, turns=2), None)
        worked = await pool.run(load, log.take)
        received = engine.received()
    sent = Counter((record.conversation_id, record.turn) for record in log.records)
    assert sent == {(f"p{number % 10}#{number // 10}", turn): 1 for number in range(24) for turn in range(2)}
    assert {record.error for record in log.records} == {None}
    assert {record.stream_index for record in log.records} == set(range(5))
    assert sorted(received) == sorted(record.request_id for record in log.records)
    assert [len(one.log.opened) > 0 for one in worked.ended] == [True, True]
    assert sum(len(one.log.ended) for one in worked.ended) == 48
    assert all(one.cpu_share is not None and one.cpu_share > 0 for one in worked.ended)
    assert "steady" in {record.phase for record in log.records}
    assert worked.timeline.steady is not None


async def test_workers_have_answers_judged_before_a_load_ends(tmp_path: Path) -> None:
    schema = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    answers = Answers.model_validate({"jsonSchema": schema})
    async with simulator(tmp_path / "truth.jsonl", SimulatorConfig(time_scale=0)) as engine, WorkerPool(2) as pool:
        load = closed_loop_load(streams=4, workers=2, conversations=8)
        for tokens, found in ((400, None), (1, "Unfinished")):
            log, output = Log(), Output(max_tokens=tokens)
            config = request_config(engine, answers=answers, output=output)
            await pool.prepare(load, config, prompts(4, turns=2), None)
            await pool.run(load, log.take)
            assert Counter((each.error, each.judged, each.flaw) for each in log.records) == {(None, True, found): 16}


@pytest.mark.parametrize("workers", [1, 2])
async def test_open_loop_follows_the_schedule_with_any_number_of_workers(workers: int, tmp_path: Path) -> None:
    times = np.array([0, 5, 5, 12, 20, 33, 34, 60, 80, 81], dtype=np.int64) * MS
    async with simulator(tmp_path / "truth.jsonl") as engine, WorkerPool(2) as pool:
        log, load = Log(), open_loop_load(times, workers)
        await pool.prepare(load, request_config(engine), prompts(4), None)
        worked = await pool.run(load, log.take)
    ordered = sorted(log.records, key=lambda record: record.stream_index)
    assert [record.intended_ns - worked.timeline.started_ns for record in ordered] == times.tolist()
    assert [record.prompt_id for record in ordered] == [f"p{number % 4}" for number in range(10)]
    assert all((record.sent_ns or 0) >= record.intended_ns for record in ordered)
    assert len(worked.ended) == workers


async def test_pool_runs_several_loads_with_different_numbers_of_workers(tmp_path: Path) -> None:
    async with simulator(tmp_path / "truth.jsonl") as engine, WorkerPool(2) as pool:
        warm = await drive(pool, engine, closed_loop_load(1, 2, 3), prompts(3), RecordPhase.WARMUP)
        wide = await drive(pool, engine, closed_loop_load(6, 2, 12), prompts(3))
        late = await drive(pool, engine, open_loop_load(np.array([0, MS]), 1), prompts(3))
    assert {record.phase for record in warm} == {"warmup"}
    assert [len(records) for records in (warm, wide, late)] == [3, 12, 2]


async def test_endless_load_is_ended_by_the_main_process(tmp_path: Path) -> None:
    async with simulator(tmp_path / "truth.jsonl", SLOW) as engine, WorkerPool(2) as pool:
        log, load = Log(), closed_loop_load(4, 2, None)
        await pool.prepare(load, request_config(engine), prompts(3), RecordPhase.WARMUP)
        running = asyncio.create_task(pool.run(load, log.take))
        await log.until(5)
        pool.no_more_conversations()
        await running
        assert sorted(engine.received()) == sorted(record.request_id for record in log.records)


async def test_killed_worker_ends_the_load_and_all_workers(tmp_path: Path) -> None:
    async with simulator(tmp_path / "truth.jsonl", SLOW) as engine, WorkerPool(2) as pool:
        pids = pool.pids
        log, load = Log(), closed_loop_load(4, 2, None)
        await pool.prepare(load, request_config(engine), prompts(3), None)
        running = asyncio.create_task(pool.run(load, log.take))
        await log.until(1)
        os.kill(pids[1], signal.SIGKILL)
        with pytest.raises(WorkerLost, match=r"worker 1 .* signal SIGKILL") as lost:
            await running
    assert lost.value.exit == 1
    for pid in pids:
        await await_exit(pid)


async def test_killed_main_process_ends_its_workers() -> None:
    script = (
        "import asyncio\nfrom specbench_client.load.worker_pool import WorkerPool\n"
        "async def main():\n    async with WorkerPool(2) as pool:\n        print(*pool.pids, flush=True)\n"
        "        await asyncio.Event().wait()\nasyncio.run(main())\n"
    )
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", script, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    pids = [int(word) for word in (await process.stdout.readline()).split()]
    assert len(pids) == 2
    process.kill()
    await process.wait()
    for pid in pids:
        await await_exit(pid)


async def test_worker_imports_neither_the_main_program_nor_modules_of_the_working_directory(tmp_path: Path) -> None:
    program = tmp_path / "program" / "program.py"
    program.parent.mkdir()
    (tmp_path / "numpy.py").write_text("print('imported')")
    program.write_text(
        "import asyncio\nfrom specbench_client.load.worker_pool import WorkerPool\nprint('imported', flush=True)\n"
        "async def main():\n    async with WorkerPool(2) as pool:\n        pass\nasyncio.run(main())\n"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, program, stdout=asyncio.subprocess.PIPE, cwd=tmp_path
    )
    printed, _ = await process.communicate()
    assert (process.returncode, printed.decode().split()) == (0, ["imported"])


async def test_workers_ignore_sigint(tmp_path: Path) -> None:
    async with simulator(tmp_path / "truth.jsonl") as engine, WorkerPool(2) as pool:
        for pid in pool.pids:
            os.kill(pid, signal.SIGINT)
        assert len(await drive(pool, engine, closed_loop_load(2, 2, 4), prompts(4))) == 4


async def test_bad_input_detected_by_a_worker_is_raised_as_bad_input(tmp_path: Path) -> None:
    async with simulator(tmp_path / "truth.jsonl") as engine, WorkerPool(1) as pool:
        config = request_config(engine, headers={"X-Key": "a\nb"})
        with pytest.raises(BadInput, match="'X-Key' contains a line break"):
            await pool.prepare(closed_loop_load(1, 1, 1), config, prompts(1), None)


async def test_internal_error_in_a_worker_is_raised_with_its_traceback(tmp_path: Path) -> None:
    async with simulator(tmp_path / "truth.jsonl") as engine, WorkerPool(1) as pool:
        with pytest.raises(WorkerLost, match=r"a worker failed: ZeroDivisionError[\s\S]*conversation_at"):
            await pool.prepare(closed_loop_load(1, 1, 1), request_config(engine), [], None)


def test_worker_does_not_import_libraries_of_the_main_process() -> None:
    script = (
        "import sys, specbench_client.load.worker\n"
        "heavy = {'pandas', 'pyarrow', 'boto3', 'kopf', 'scipy', 'matplotlib', 'rich', 'aiohttp'}\n"
        "print(*sorted(heavy & set(sys.modules)))"
    )
    seen = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert seen.stdout.split() == []


async def test_phases_are_shared_by_all_workers(tmp_path: Path) -> None:
    async with simulator(tmp_path / "truth.jsonl", SLOW) as engine, WorkerPool(2) as pool:
        log, load = Log(), closed_loop_load(streams=4, workers=2, conversations=20)
        await pool.prepare(load, request_config(engine), prompts(20), None)
        worked = await pool.run(load, log.take)
    steady_start_ns, steady_end_ns, _ = worked.timeline.steady_bounds
    assert steady_start_ns is not None
    assert steady_end_ns is not None
    for record in log.records:
        assert record.sent_ns is not None
        assert record.last_token_ns is not None
        if record.phase == "steady":
            assert record.sent_ns >= steady_start_ns
            assert record.last_token_ns <= steady_end_ns
    others, laid_out = 3, 2
    assert sum(record.phase == "drain" for record in log.records) <= others + laid_out
