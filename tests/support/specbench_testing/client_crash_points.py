"""Jobs of the client that fail at one write to S3, and how the results differ from those of uninterrupted ones.

Real are: the client's processes, the S3 server, and HTTP between them. The engine is the simulator. A Job starts the
same command again after a kill, as its controller does; after an injected error the same process must succeed.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Any, Self
from unittest.mock import patch
from urllib.parse import unquote, urlsplit

import boto3
from botocore.config import Config

from specbench_api.outcome.layout import GATE, SUMMARY, run_root
from specbench_api.plan.canonical import digest_of_gate
from specbench_api.plan.plan import Plan
from specbench_api.spec.gate import GATE_VARIABLE, Gate, GateRequest
from specbench_client.store.points import PointStore
from specbench_client.store.s3 import S3Store
from specbench_client.store.store import Store
from specbench_testing.crash_points import CrashPoint, CrashPointResult, Enumeration, Select
from specbench_testing.fault_proxy import (
    KILLS,
    ArmedFault,
    Described,
    FaultProxy,
    Request,
    Upstream,
    WriteKey,
    Writer,
)
from specbench_testing.operator_process import eventually
from specbench_testing.s3 import REGION, S3Access
from specbench_testing.simulated_groups import plan_of, write_prompts
from specbench_testing.synthetic_records import measured_rows


class ClientForks:
    """The process that forks, within a `with` block. One command at a time."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._pid: int | None = None
        self._pid_known = threading.Event()
        self._ended = threading.Event()

    def __enter__(self) -> Self:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        call = [sys.executable, "-m", __name__]
        self._process = subprocess.Popen(
            call, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.communicate()

    def run(self, arguments: Sequence[str], environment: Mapping[str, str], log: Path) -> int:
        """Run one command line to its end; returns the exit code, negative for a signal."""
        self._ended.clear()
        self._send({"arguments": list(arguments), "environment": dict(environment), "log": str(log)})
        self._pid = int(self._receive()["pid"])
        self._pid_known.set()
        code = int(self._receive()["code"])
        self._pid_known.clear()
        self._ended.set()
        return code

    def kill(self) -> None:
        """Kill the command that runs, and wait for its end."""
        assert self._pid_known.wait(10)
        assert self._pid is not None
        os.kill(self._pid, 9)
        assert self._ended.wait(30)

    def _send(self, document: Mapping[str, Any]) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(document) + "\n")
        self._process.stdin.flush()

    def _receive(self) -> dict[str, Any]:
        assert self._process is not None
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the process that forks clients has ended"
        return dict(json.loads(line))


def main() -> None:
    """Fork until stdin ends."""
    import specbench_client.stored_runs.gate
    import specbench_client.stored_runs.write_results  # noqa: F401 -- likewise
    from specbench_client.analysis.statistics import bootstrap
    from specbench_client.job.commands import run_program

    bootstrap.RESAMPLES = 200
    patch("specbench_client.report.html.draw_figures", lambda _: {}).start()

    for line in sys.stdin:
        request = json.loads(line)
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
                os.dup2(log, 1)
                os.dup2(log, 2)
                os.environ.update(request["environment"])
                code = run_program(request["arguments"])
            finally:
                os._exit(code)
        print(json.dumps({"pid": pid}), flush=True)  # noqa: T201 -- the protocol
        _, status = os.waitpid(pid, 0)
        print(json.dumps({"code": os.waitstatus_to_exitcode(status)}), flush=True)  # noqa: T201 -- likewise


if __name__ == "__main__":
    main()


LOADS: Mapping[str, Mapping[str, Any]] = {
    "closed loop": {"concurrency": [1, 2], "repeats": 1, "warmupRequests": 2},
    "open loop": {"rate": [40], "slots": 2, "repeats": 1, "warmupRequests": 2},
}
"""`spec.load` of the plans."""
PROMPTS, TURNS = 6, 2
STARTS_MAX = 3
_LIFE = re.compile(r"life-\w+-\d{4}")
_HASH = re.compile(r"\b[0-9a-f]{64}\b")
_ATTEMPT = re.compile(r"\b\d+-[0-9a-f]{6}\b|(?<=\bupload-)[0-9a-f]{32}\b")
_LEFT_BY_ATTEMPT = re.compile(r"launches/.*|points/[^/]+/(records/|schedule-|summary).*")
"""Files that a killed attempt may leave: only manifests name what counts."""
_OTHER_SUMMARY = "summary-ATTEMPT.json"
"""A point's summary if a killed attempt has left one: no file of a point is replaced."""


@dataclass(frozen=True)
class ClientLife:
    """One command of a Job. `needs`: the life whose results it starts from."""

    name: str
    arguments: Callable[[Path, ClientLane, str], Sequence[str]]
    """The command line, from the plan's file, the lane, and the name of the life."""
    needs: ClientLife | None = None
    load: str = "closed loop"
    environment: Callable[[ClientLane, str], Mapping[str, str]] = lambda _lane, _life: {}


def _drive(group: int) -> Callable[[Path, ClientLane, str], Sequence[str]]:
    return lambda plan, lane, life: [
        "drive", "--plan", str(plan), "--group", str(group), "--attempt", "0", "--endpoint", lane.engine,
        "--results", f"s3://{lane.access.bucket}/{life}",
    ]  # fmt: skip


def _report(plan: Path, lane: ClientLane, life: str) -> Sequence[str]:
    return ["report", "--plan", str(plan), "--results", f"s3://{lane.access.bucket}/{life}"]


def _gate(_plan: Path, lane: ClientLane, life: str) -> Sequence[str]:
    return ["gate", "--results", f"s3://{lane.access.bucket}/{life}/{lane.root}"]


def _gate_request(lane: ClientLane, life: str) -> dict[str, str]:
    gate = Gate.model_validate({"baselineRef": {"run": "main"}})
    baseline = f"s3://{lane.access.bucket}/{life}/{lane.root}"
    request = GateRequest(gate_digest=digest_of_gate(gate), gate=gate, baseline=baseline)
    return {GATE_VARIABLE: request.to_line()}


MEASURE = ClientLife("measure", _drive(0))
MEASURE_NEXT = ClientLife("measure next", _drive(1), MEASURE)
REPORT = ClientLife("report", _report, MEASURE_NEXT)
GATE_LIFE = ClientLife("gate", _gate, REPORT, environment=_gate_request)
LIVES = (MEASURE, MEASURE_NEXT, REPORT, GATE_LIFE, ClientLife("measure, open loop", _drive(0), load="open loop"))
"""Together they have every kind of write."""


def _numbers(plans: Iterable[Plan]) -> dict[str, str]:
    """A short name for each point."""
    return {point.hash: f"POINT{number}" for plan in plans for number, point in enumerate(plan.points)}


def describe(plans: Iterable[Plan]) -> Callable[[Request], Described | None]:
    """Describe a write to S3: the key without the root, hashes of points and names of attempts."""
    numbers = _numbers(plans)

    def described(request: Request) -> Described | None:
        path = unquote(urlsplit(request.path).path)
        life = _LIFE.search(path)
        if life is None:
            return None
        return Described(life[0], f"put {plain_key(path.split('/', 7)[-1], numbers)}")

    return described


def plain_key(key: str, numbers: Mapping[str, str]) -> str:
    """A key below the run's root, the same in every life."""
    return _ATTEMPT.sub("ATTEMPT", _HASH.sub(lambda found: numbers.get(found[0], found[0]), key))


_S3_CODES = {409: "ConditionalRequestConflict", 429: "TooManyRequests", 500: "InternalError"}


def refusal(status: int) -> tuple[bytes, str]:
    """The body of an error answer of S3."""
    body = f"<?xml version='1.0'?><Error><Code>{_S3_CODES[status]}</Code><Message>injected fault</Message></Error>"
    return body.encode(), "application/xml"


@dataclass(frozen=True)
class ClientEndState:
    """The results without times and random names."""

    keys: Sequence[str]
    """Keys that count, and how many points each manifest names."""
    records: Mapping[str, int]
    """Measured turns of prompts: how often each is in the records that the manifests name."""
    documents: Mapping[str, Any]

    def differences(self, expected: ClientEndState) -> list[str]:
        """What differs from the expected results, one line each."""
        lines = []
        for name in ("keys", "records"):
            wanted, found = Counter(getattr(expected, name)), Counter(getattr(self, name))
            lines += [f"{name}: missing {row} x{times}" for row, times in sorted((wanted - found).items())]
            lines += [f"{name}: too many {row} x{times}" for row, times in sorted((found - wanted).items())]
        for name, document in expected.documents.items():
            if self.documents.get(name) != document:
                lines.append(f"{name}: {self.documents.get(name)} instead of {document}")
        return lines


@dataclass
class ClientLane:
    """A proxy before the S3 server, an engine, and the process that starts clients."""

    name: str
    folder: Path
    plans: Mapping[str, Plan]
    """By their load."""
    access: S3Access
    proxy: FaultProxy
    forks: ClientForks
    engine: str
    _number: int = 0

    @property
    def root(self) -> str:
        """The run's root below a prefix, which is the same for all plans."""
        plan = next(iter(self.plans.values()))
        return run_root(plan.namespace, plan.name, plan.uid)

    def store(self, life: str) -> Store:
        """The run's results, without the proxy."""
        client = boto3.client(
            "s3", endpoint_url=self.access.endpoint, region_name=REGION, aws_access_key_id=self.access.key,
            aws_secret_access_key=self.access.secret, config=Config(s3={"addressing_style": "path"}),
        )  # fmt: skip
        return S3Store(client, self.access.bucket, f"{life}/{self.root}")

    def live(self, life: ClientLife, start: Mapping[str, bytes], fault: ArmedFault | None = None) -> LifeOutcome:
        """Run the command of a life from these objects; again after each kill."""
        self._number += 1
        name = f"life-{self.name}-{self._number:04}"
        store = self.store(name)
        for key, data in start.items():
            store.put(key, data)
        writes = self.proxy.watch(name, fault)
        environment = {
            **replace(self.access, endpoint=self.proxy.url).environment(),
            **life.environment(self, name),
            "TMPDIR": str(self.folder),
        }
        plan = self.folder / f"{name}.json"
        plan.write_text(self.plans[life.load].to_json())
        codes: list[int] = []
        while not codes or (codes[-1] == -9 and len(codes) < STARTS_MAX):
            codes.append(self.forks.run(life.arguments(plan, self, name), environment, self.folder / f"{name}.log"))
        kills = 1 if fault and fault.kind in KILLS and fault.struck.is_set() else 0
        errors = []
        if codes != [-9] * kills + [0]:
            errors = [f"exit codes {codes}: {(self.folder / f'{name}.log').read_text()[-600:]}"]
        return LifeOutcome(store, [key for key in writes.keys if key.occurrence == 0], errors)

    def end_state(self, life: ClientLife, store: Store) -> ClientEndState:
        """The results now. Fails if a file differs from its manifest."""
        plan = self.plans[life.load]
        numbers, points = _numbers([plan]), PointStore(store)
        manifests = points.manifests([point.hash for point in plan.points])
        present = store.keys()
        named = {file.key for manifest in manifests.values() for file in manifest.files}
        counted = [key for key in present if key in named or not _LEFT_BY_ATTEMPT.fullmatch(key)]
        counted += [f"launches/{manifest.observed.launch}.json" for manifest in manifests.values()]
        missing = [f"missing {key}" for key in set(counted) - set(present)]
        frames = [
            part.to_pandas().assign(point=name)
            for name, each in manifests.items()
            for part in points.read_files(name, each.files)
        ]
        documents = {key: _counts(json.loads(store.get(key) or b"")) for key in (SUMMARY, GATE) if key in present}
        for manifest in manifests.values():
            documents[numbers[manifest.hash]] = _counts(json.loads(points.read_summary(manifest).to_json()))
        return ClientEndState(
            keys=sorted(
                {plain_key(key, numbers).replace(_OTHER_SUMMARY, "summary.json") for key in [*counted, *missing]}
            ),
            records=_turns(frames, numbers),
            documents=documents,
        )

    def try_point(
        self, life: ClientLife, point: CrashPoint, start: Mapping[str, bytes], expected: ClientEndState
    ) -> CrashPointResult:
        """One life with a fault, compared with the uninterrupted one."""
        began = time.monotonic()
        fault = ArmedFault(point.kind, point.at)
        outcome = self.live(life, start, fault)
        lines = outcome.errors or self.end_state(life, outcome.store).differences(expected)
        return CrashPointResult(point, fault.struck.is_set(), lines, time.monotonic() - began)


@dataclass(frozen=True)
class LifeOutcome:
    """What a life left: its store, its distinct writes in order, and unexpected exits."""

    store: Store
    writes: list[WriteKey]
    errors: list[str]

    def objects(self) -> dict[str, bytes]:
        """All objects of the run."""
        return {key: self.store.get(key) or b"" for key in self.store.keys()}  # noqa: SIM118 -- not a dict


_COUNTS = {"pointsMeasured", "pointsTotal", "requests", "outputTokens", "failedRequests", "arm", "load", "workload"}
_TIMED = {"findings", "counters"}
"""Findings depend on times, and the engine counts what was sent around the load too."""


def _counts(document: Any) -> Any:
    """Everything of a document that does not depend on times: names and counts, at every depth."""
    if isinstance(document, dict):
        parts = {key: part if key in _COUNTS else _counts(part) for key, part in document.items() if key not in _TIMED}
        return {key: part for key, part in parts.items() if part not in ({}, [], None)}
    if isinstance(document, list):
        return [part for part in map(_counts, document) if part not in ({}, [], None)]
    return None


def _turns(frames: Sequence[Any], numbers: Mapping[str, str]) -> dict[str, int]:
    rows: Counter[str] = Counter()
    for frame in frames:
        kept = measured_rows(frame)
        kept = kept[kept.error_class.isna()]
        turns = zip(kept.point.map(numbers), kept.prompt_id, kept.turn, strict=True)
        rows.update(f"{point} {prompt} {turn}" for point, prompt, turn in turns)
    return dict(rows)


@contextmanager
def _engine(folder: Path) -> Iterator[str]:
    """The simulator as a process; yields its URL."""
    code = "from specbench_client.cli.simulate import simulate; simulate()"
    call = [sys.executable, "-c", code, "--port", "0", "--time-scale", "0", "--port-file", str(folder / "port")]
    with (folder / "engine.log").open("wb") as log:
        process = subprocess.Popen(call, stdout=log, stderr=log, cwd=folder)
    try:
        eventually(lambda: (folder / "port").exists() and (folder / "port").read_text(), "no engine", 60)
        yield f"http://127.0.0.1:{int((folder / 'port').read_text())}"
    finally:
        process.kill()
        process.wait()


@contextmanager
def client_lane(name: str, folder: Path, access: S3Access) -> Iterator[ClientLane]:
    """One lane, within a `with` block. One life at a time."""
    folder.mkdir(parents=True)
    prompts = write_prompts(folder.parent / "prompts.jsonl", count=PROMPTS, turns=TURNS)
    plans = {name: plan_of(prompts, {"spec.load": load}) for name, load in LOADS.items()}
    url = urlsplit(access.endpoint)
    with ExitStack() as stack:
        forks = stack.enter_context(ClientForks())
        engine = stack.enter_context(_engine(folder))
        upstream = Upstream(str(url.hostname), int(url.port or 80))
        proxy = stack.enter_context(
            FaultProxy(upstream, Writer(describe(plans.values()), refusal, lambda _: forks.kill()), unanswered_s=0.2)
        )
        yield ClientLane(name, folder, plans, access, proxy, forks, engine)


LANES = 2


def enumerate_client(
    access: S3Access, folder: Path, select: Select, lives: Sequence[ClientLife] = LIVES
) -> Enumeration:
    """Try the selected crash points of these lives, in LANES lanes at a time."""
    found = Enumeration()
    by_name = {life.name: life for life in lives}
    starts: dict[str, Mapping[str, bytes]] = {}
    left: dict[str, Mapping[str, bytes]] = {}
    ends: dict[str, ClientEndState] = {}
    with client_lane("whole", folder / "whole", access) as whole:
        for life in lives:
            starts[life.name] = left[life.needs.name] if life.needs else {}
            outcome = whole.live(life, starts[life.name])
            assert not outcome.errors, outcome.errors
            left[life.name], ends[life.name] = outcome.objects(), whole.end_state(life, outcome.store)
            found.lived(life.name, outcome.writes, select)
    queue: SimpleQueue[CrashPoint] = SimpleQueue()
    for point in found.points:
        queue.put(point)

    def work(number: int) -> None:
        with client_lane(f"lane{number}", folder / f"lane{number}", access) as lane, suppress(Empty):
            while True:
                point = queue.get_nowait()
                found.add(lane.try_point(by_name[point.life], point, starts[point.life], ends[point.life]))

    with ThreadPoolExecutor(LANES) as threads:
        for turn in [threads.submit(work, number) for number in range(LANES)]:
            turn.result()
    return found
