"""Stores the requests of other benchmarks' result files as a run: a plan, points, records; columns they lack are null.

Without send times a point has no steady window: all its requests count as steady, and the throughput is missing. With
send times the phases are ours: requests that began before the load was complete or ended after it are in no figure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from specbench_api.plan.canonical import digest
from specbench_api.plan.plan import Arm, EngineGroup, Plan, Point
from specbench_api.spec.dataset import Dataset, Source
from specbench_api.spec.drafter import BASELINE_NAME
from specbench_api.spec.engine import IMPORTED, Endpoint, Engine, EngineKind, PromptCache
from specbench_api.spec.load import ArmOrder, Level, Load
from specbench_api.spec.model import Target
from specbench_api.spec.placement import Placement
from specbench_api.spec.workload import Output, Sampling, Workload
from specbench_client.analysis.summary.point import summarise_point
from specbench_client.dialects.engine_answer import RequestAcceptance
from specbench_client.documents.manifest import PointProvenance
from specbench_client.documents.record import AcceptanceSource, Record, RecordPhase, answer_digest
from specbench_client.documents.summary import ClientHealth
from specbench_client.errors import BadInput
from specbench_client.load.steady_state import SteadyBounds
from specbench_client.metrics.tidy_frame import COLUMNS, tidy
from specbench_client.peer_results.reading import PeerReading, PeerRequest
from specbench_client.store.points import MeasurementSpan, PointStore
from specbench_client.store.store import Store

WORKLOAD = "prompts"
ATTEMPT = "import"
UNREADABLE = "failed"
"""Error class of an imported request: other benchmarks have classes of their own."""


@dataclass(frozen=True)
class ImportedMeasurement:
    """A measurement with requests, its arm and load. `ended`: when its file was written."""

    arm: str
    level: Level
    reading: PeerReading
    ended: datetime


def import_plan(name: str, measurements: Sequence[ImportedMeasurement], temperature: float | None) -> Plan:
    """Return the plan of these measurements; those of one arm and load are its repeats. Raises BadInput."""
    if len({measurement.level.concurrency is None for measurement in measurements}) > 1:
        raise BadInput("the files have loads of both kinds (concurrency and rate): import each kind on its own")
    _reject_copies(measurements)
    levels = sorted({m.level for m in measurements}, key=lambda level: level.order)
    arms = sorted(dict.fromkeys(m.arm for m in measurements), key=lambda arm: arm != BASELINE_NAME)
    points = {arm: list(_points(arm, measurements)) for arm in arms}
    longest = max((r.output_tokens or 1 for m in measurements for r in m.reading.requests), default=1)
    models = {m.reading.result.model for m in measurements if m.reading.result.model}
    if len(models) > 1:
        raise BadInput(f"the files are of different models ({', '.join(sorted(models))}): import each on its own")
    servers = [Endpoint(name=arm, url=IMPORTED) for arm in arms]
    return Plan(
        namespace="local",
        name=name,
        uid="",
        target=Target(name=next(iter(models), "unknown")),
        engine=Engine(kind=EngineKind.EXTERNAL, endpoints=servers),
        prompt_cache=PromptCache.AS_SERVED,
        arms=[Arm(name=server.name, endpoint=server) for server in servers],
        workloads=[
            Workload(
                name=WORKLOAD,
                dataset=Dataset(source=Source.JSONL, uri=WORKLOAD),
                sampling=Sampling(temperature=temperature or 0.0),
                output=Output(max_tokens=min(max(longest, 1), 131_072)),
            )
        ],
        load=_load(levels, max(point.repeat for of_arm in points.values() for point in of_arm) + 1),
        placement=Placement(),
        groups=[EngineGroup(index=index, arm=arm, points=of_arm) for index, (arm, of_arm) in enumerate(points.items())],
    )


def _reject_copies(measurements: Sequence[ImportedMeasurement]) -> None:
    """Raise BadInput if two measurements have the same requests: a copy is no repeat, and no baseline of itself."""
    files = dict[str, str]()
    for measurement in measurements:
        file, content = measurement.reading.result.file, digest([repr(each) for each in measurement.reading.requests])
        if content in files:
            raise BadInput(
                f"{file}: has the same requests as {files[content]}: give each measurement once; a repeat is a run of"
                " its own, with its own file"
            )
        files[content] = file


def _load(levels: Sequence[Level], repeats: int) -> Load:
    common = {"warmup_requests": 0, "repeats": repeats, "order": ArmOrder.SEQUENTIAL}
    if levels[0].concurrency is not None:
        return Load(concurrency=[level.concurrency for level in levels if level.concurrency], **common)
    return Load(rate=[level.rate for level in levels if level.rate], slots=8, **common)


def _points(arm: str, measurements: Sequence[ImportedMeasurement]) -> Iterator[Point]:
    """Yield the arm's points in the order of its measurements."""
    seen: Counter[str] = Counter()
    for measurement in (each for each in measurements if each.arm == arm):
        label, result = measurement.level.label, measurement.reading.result
        first = [repr(request) for request in measurement.reading.requests[:100]]
        content = {"arm": arm, "load": label, "repeat": seen[label], "result": result.to_dict(), "requests": first}
        yield Point(hash=digest(content), arm=arm, workload=WORKLOAD, level=measurement.level, repeat=seen[label])
        seen[label] += 1


def write_import(
    plan: Plan, store: Store, measurements: Sequence[ImportedMeasurement], *, compare_answers: bool
) -> None:
    """Store the points of the plan that are not stored yet. Blocks. Raises NotDurable.

    `compare_answers`: whether the temperature is known, without which different answers mean nothing.
    """
    points = PointStore(store)
    measured = points.measured(point.hash for point in plan.points)
    by_arm = [measurement for arm in plan.arms for measurement in measurements if measurement.arm == arm.name]
    for point, measurement in zip(plan.points, by_arm, strict=True):
        if point.hash not in measured:
            _write_point(plan, point, measurement, points, compare_answers=compare_answers)


def _write_point(
    plan: Plan, point: Point, measurement: ImportedMeasurement, points: PointStore, *, compare_answers: bool
) -> None:
    reading = measurement.reading
    records = list(_records(point, reading))
    writer = points.open(point, ATTEMPT)
    for record in records:
        writer.add(record if compare_answers else replace(record, output_sha256=None, output_text=None))
    file = writer.finish()
    rows = tidy(points.read_files(point.hash, [file], COLUMNS), point.hash)
    summary = summarise_point(plan, point, rows, ClientHealth(), reading.counters, simulated=False)
    length_s = max((record.last_token_ns or 0 for record in records), default=0) / 1e9
    ended = measurement.ended
    span = MeasurementSpan(0, _rfc3339(ended.timestamp() - length_s), _rfc3339(ended.timestamp()))
    observed = PointProvenance(
        dataset_fingerprint=digest(sorted({record.prompt_id for record in records})),
        prompts=len({record.prompt_id for record in records}),
        client_version=" ".join(filter(None, [reading.result.tool, reading.result.tool_version])),
        launch=f"{ATTEMPT}-{point.arm}-{point.repeat}",
    )
    points.commit(summary, ATTEMPT, [file], span, observed)


def _rfc3339(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _records(point: Point, reading: PeerReading) -> Iterator[Record]:
    requests = reading.requests
    starts = [request.start_ns for request in requests if request.start_ns is not None]
    timed = len(starts) == len(requests)
    begin_ns = min((r.start_ns - r.waited_ns for r in requests if r.start_ns is not None), default=0)
    bounds = _bounds(point.level, requests) if timed else SteadyBounds(0, None)
    passes: Counter[str] = Counter()
    for index, request in enumerate(requests):
        prompt = digest(request.prompt)[:16]
        if not request.turn:
            passes[prompt] += 1
        start_ns = (request.start_ns or 0) - begin_ns if timed else 0
        ended_ns = (request.start_ns or 0) + (request.last_ns or 0)
        failed = request.error is not None
        acceptance = _acceptance(point.arm, request, chunks_are_steps=reading.chunks_are_steps)
        yield Record(
            request_id=f"{point.hash[:12]}-{ATTEMPT}-{index}",
            prompt_id=prompt,
            category=None,
            conversation_id=f"{prompt}#{max(passes[prompt] - 1, 0)}",
            turn=request.turn,
            repeat=point.repeat,
            phase=str(bounds.phase(request.start_ns or 0, ended_ns) if timed else RecordPhase.STEADY),
            stream_index=index,
            intended_ns=start_ns - (request.waited_ns if timed else 0),
            connect_ns=None,
            sent_ns=start_ns if timed else None,
            first_byte_ns=None,
            first_token_ns=None if failed or request.first_ns is None else start_ns + request.first_ns,
            last_token_ns=None if failed or request.last_ns is None else start_ns + request.last_ns,
            chunk_ns=None if failed or request.chunk_ns is None else [start_ns + each for each in request.chunk_ns],
            chunk_tokens=None,
            chunk_coalesced=None,
            timestamp_source="user",
            input_tokens=request.input_tokens,
            output_tokens=request.output_tokens,
            output_tokens_client=None,
            steps=acceptance.steps,
            draft_steps=acceptance.draft_steps,
            drafted_tokens=acceptance.drafted_tokens,
            accepted_tokens=acceptance.accepted_tokens,
            acceptance_source=acceptance.source,
            step_accepted=None,
            cached_tokens=None,
            finish_reason=None,
            error_class=UNREADABLE if failed else None,
            error=request.error,
            output_sha256=answer_digest(request.text) if request.text else None,
            output_text=request.text,
        )


def _acceptance(arm: str, request: PeerRequest, *, chunks_are_steps: bool) -> RequestAcceptance:
    """Return steps and drafts. Accepted tokens that were cut off at the end of the answer are not counted."""
    tokens, steps, accepted = request.output_tokens, request.draft_steps, request.accepted_tokens
    if request.error is not None or not tokens:
        return RequestAcceptance()
    if arm == BASELINE_NAME and not steps and not chunks_are_steps:  # A baseline whose file has drafts keeps them.
        return RequestAcceptance(steps=tokens - 1)
    if steps is not None and accepted is not None:
        return RequestAcceptance(
            steps=steps + max(tokens - 1 - steps - accepted, 0),
            draft_steps=steps,
            drafted_tokens=request.drafted_tokens,
            accepted_tokens=min(accepted, max(tokens - 1 - steps, 0)),
            source=AcceptanceSource.PER_REQUEST,
        )
    if chunks_are_steps and request.chunk_ns:
        steps = len(request.chunk_ns) - 1
        return RequestAcceptance(
            steps=steps, accepted_tokens=max(tokens - 1 - steps, 0), source=AcceptanceSource.CHUNKS
        )
    return RequestAcceptance()


def _bounds(level: Level, requests: Sequence[PeerRequest]) -> SteadyBounds:
    """Return the steady state, as `load.steady_state` defines it, from the times of all requests."""
    starts = sorted(request.start_ns or 0 for request in requests)
    ends = sorted((request.start_ns or 0) + (request.last_ns or 0) for request in requests)
    if level.concurrency is not None:
        full_ns = starts[level.concurrency - 1] if level.concurrency <= len(starts) else None
        return SteadyBounds(full_ns, next((end for end in ends if end > starts[-1]), None))
    opened = 0
    for ended, end in enumerate(ends, start=1):
        while opened < len(starts) and starts[opened] <= end:
            opened += 1
        if ended >= opened - ended:
            return SteadyBounds(end, starts[-1], by_opening=True)
    return SteadyBounds(None, None)
