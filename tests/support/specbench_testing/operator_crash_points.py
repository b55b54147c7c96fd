"""Lives of runs whose operator fails at one write, and how their end differs from an uninterrupted life.

The operator is the real process, the API server and the S3 server are real, and so are the controllers and the
scheduler. Engines and clients are simulated (`simulated_site`). A life is a run from its creation until nothing of it
changes any more. The writes of an uninterrupted life are recorded, and each becomes a crash point: a write that a later
version of the operator adds is a new case.
"""

from __future__ import annotations

import json
import re
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from peers.kwok.stages import OUT_OF_MEMORY
from specbench_operator.render.client_jobs import CLIENT_IMAGE
from specbench_testing.cluster import Cluster
from specbench_testing.cluster_run import ClusterRun
from specbench_testing.crash_points import CrashPoint, CrashPointResult, Enumeration, Select
from specbench_testing.fault_proxy import (
    KILLS,
    ArmedFault,
    Described,
    FaultKind,
    FaultProxy,
    Request,
    SubjectWrites,
    WriteKey,
    Writer,
    api_upstream,
)
from specbench_testing.kwok_nodes import KwokNodes, placement
from specbench_testing.operator_process import OperatorSite, eventually, retry_until_available
from specbench_testing.resources import endpoint_edits
from specbench_testing.simulated_site import NO_IMAGE, SimulatedSite, simulated_site
from specbench_testing.stand_in_client import BUSY_SEED

RUN_NAME = re.compile(r"life-\d{4}")
LEASE = "lease"
LIFE_MAX_S = 400.0
SETTLE_MAX_S = 30.0
LOOK_S = 0.5
SETTINGS = {"SPECBENCH_REQUEST_TIMEOUT_S": "3"}
"""A write without an answer is given up after this time."""
_KINDS = {
    "jobs": "Job",
    "services": "Service",
    "configmaps": "ConfigMap",
    "networkpolicies": "NetworkPolicy",
    "specbenchruns": "SpecBenchRun",
    "specbenchcampaigns": "SpecBenchCampaign",
}


def describe(request: Request) -> Described | None:
    """Describe a write of the operator to the API server."""
    _, _, inside = urlsplit(request.path).path.partition("/namespaces/")
    if not inside:
        return None
    _, plural, *rest = inside.split("/")
    name = rest[0] if rest else str(request.json.get("metadata", {}).get("name", ""))
    if plural == "leases":
        return Described(LEASE, "create Lease" if request.method == "POST" else "renew Lease")
    found = RUN_NAME.search(name)
    if found is None:
        return None
    subresource = rest[1] if rest[1:] else ""
    return Described(found[0], _described_write(request, plural, subresource, name.replace(found[0], "RUN")))


def _described_write(request: Request, plural: str, subresource: str, name: str) -> str:
    body = request.json
    if plural == "events":
        about = re.match(r"(group \d+) \(arm [^,]+, (launch \d+)\)", body["message"])
        return f"event {body['reason']}" + (f" of {about[1]} {about[2]}" if about else "")
    if subresource == "status":
        return f"status {_described_status(body['status'])}"
    verbs = {"POST": "create", "DELETE": "delete", "PATCH": _described_patch(body)}
    return f"{verbs[request.method]} {_KINDS[plural]} {name}"


def _described_status(status: Mapping[str, Any]) -> str:
    """Phase and states of the groups, without progress."""
    states = " ".join(row["state"] for row in status.get("groups", []))
    ended = " completed" if status.get("completionTime") else ""
    return f"{status.get('phase')}: {states}{ended}" if states else f"{status.get('phase')}{ended}"


def _described_patch(body: Mapping[str, Any]) -> str:
    """The annotations that are set; which fields a patch has depends on whether the Job has ended."""
    names = (body.get("metadata") or {}).get("annotations") or {}
    return f"patch {', '.join(sorted(name.partition('/')[2] for name in names))} of"


def refusal(status: int) -> tuple[bytes, str]:
    """The body of an error answer of the API server."""
    body: dict[str, Any] = {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "code": status,
        "message": "injected fault",
    }
    if status == 409:  # of a quota that another request has used, not of the object
        body["reason"] = "Conflict"
    return json.dumps(body).encode(), "application/json"


class Version(NamedTuple):
    """A version of the operator: the image of its clients, and the Python that it is installed for."""

    image: str
    python: str = sys.executable


VERSIONS = (Version(NO_IMAGE), Version(f"{NO_IMAGE}-other"))
"""This version, and the same one with another image."""


@dataclass(frozen=True)
class Life:
    """A kind of life: edits of the run, and what the user does meanwhile."""

    name: str
    edits: Mapping[str, Any] = field(default_factory=dict)
    act: Callable[[SimulatedSite, ClusterRun], None] = lambda _site, _run: None


def _resume(site: SimulatedSite, run: ClusterRun) -> None:
    """Resume a run that was created suspended, once the operator has noticed it."""
    eventually(lambda: run.phase() == "Suspended", f"{run.name} is not suspended", LIFE_MAX_S)
    run.suspend(suspended=False)


def _delete_engine(site: SimulatedSite, run: ClusterRun) -> None:
    """Delete the pod of the first engine before it is ready."""
    (pod, *_) = eventually(lambda: run.living("engine"), f"{run.name} has no engine", LIFE_MAX_S)
    body = {"gracePeriodSeconds": 0}
    path = f"/api/v1/namespaces/{run.namespace}/pods/{pod}"
    retry_until_available(lambda: run.cluster.call("DELETE", path, body))


ONE_LOAD = {"spec.load": {"concurrency": [1], "repeats": 1, "warmupRequests": 1, "order": "Sequential"}}
MEASURED = Life("measured", ONE_LOAD)
LIVES = (
    MEASURED,
    Life("resumed", {**ONE_LOAD, "spec.suspend": True}, _resume),
    Life("engine fails", {**ONE_LOAD, "spec.drafters[0].args": [OUT_OF_MEMORY]}),
    Life("engine deleted", ONE_LOAD, _delete_engine),
    Life("endpoints", {**ONE_LOAD, **endpoint_edits("none", "b"), "spec.placement": {"client": placement()["client"]}}),
)
"""Together they have every kind of write of a run without added rounds."""
RETRIED = Life(
    "retried",
    {
        "spec.load": {"concurrency": [1], "repeats": 3, "warmupRequests": 1},
        "spec.workloads[0].sampling": {"seed": BUSY_SEED},
    },
)


@dataclass(frozen=True)
class EndState:
    """What is left of a run that has ended, without times and random names."""

    status: Any
    objects: Sequence[str]
    gpus: int
    results: Sequence[str]
    measured: Mapping[str, int]
    events: Mapping[str, int]

    def differences(self, expected: Sequence[EndState]) -> list[str]:
        """What differs from the most similar of the expected states, one line each."""
        return min((self._differences(each) for each in expected), key=len)

    def _differences(self, expected: EndState) -> list[str]:
        lines = []
        for name in ("status", "gpus"):
            lines += _differences(name, getattr(expected, name), getattr(self, name))
        for name in ("objects", "results", "measured", "events"):
            wanted, found = Counter(getattr(expected, name)), Counter(getattr(self, name))
            lines += [f"{name}: missing {row} x{times}" for row, times in sorted((wanted - found).items())]
            lines += [f"{name}: too many {row} x{times}" for row, times in sorted((found - wanted).items())]
        return lines


def _differences(path: str, expected: Any, found: Any) -> list[str]:
    if isinstance(expected, dict) and isinstance(found, dict):
        keys = sorted({*expected, *found})
        return [row for key in keys for row in _differences(f"{path}.{key}", expected.get(key), found.get(key))]
    return [] if expected == found else [f"{path}: {found!r} instead of {expected!r}"]


_TIME = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+(?:Z|\+00:00)")
_UID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_SUFFIX = re.compile(r"(?<=\d)-[0-9a-f]{6}\b")
_DELETED_POD = re.compile(r"(node [\w-]+: )?its pod (is gone|was deleted|is being deleted(: node [\w-]+)?)")
"""A deleted pod is observed before, while, or after it ends."""
_NODE = re.compile(r"\bkwok-\w+-\d+\b")
_UNSTABLE = {
    "startTime", "completionTime", "lastTransitionTime", "gpuSecondsHeld", "observedAt", "since", "resourceVersion",
}  # fmt: skip


class _Plain:
    """Replaces what differs between two runs of the same spec: name, UID, times, hashes of points, random suffixes."""

    def __init__(self, run: ClusterRun, points: Sequence[str], image: str, *, messages: bool) -> None:
        self._left_out = _UNSTABLE if messages else {*_UNSTABLE, "message"}
        self._names = [(run.uid, "UID"), (run.name, "RUN"), (run.namespace, "NAMESPACE"), (image, "IMAGE")]
        for number, point in enumerate(points):
            self._names += [(point, f"POINT{number}"), (point[:12], f"POINT{number}")]

    def text(self, text: str) -> str:
        for name, plain in self._names:
            text = text.replace(name, plain)
        text = _DELETED_POD.sub("its pod was deleted", text)
        return _NODE.sub("NODE", _SUFFIX.sub("-N", _UID.sub("UID", _TIME.sub("TIME", text))))

    def value(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: self.value(part) for key, part in value.items() if key not in self._left_out}
        if isinstance(value, list):
            return {_row_name(number, part): self.value(part) for number, part in enumerate(value)}
        return self.text(value) if isinstance(value, str) else value


def _row_name(number: int, row: Any) -> str:
    return str(row.get("type", number)) if isinstance(row, dict) else str(number)


def end_state(site: SimulatedSite, run: ClusterRun, *, messages: bool) -> EndState:
    """The current state of a run that has ended, with or without the texts of messages."""
    stored = site.stored(run)
    points = stored.points()
    recorded = [row["data"][CLIENT_IMAGE] for row in run.children("configmaps") if CLIENT_IMAGE in row["data"]]
    plain = _Plain(run, points, recorded[0] if recorded else NO_IMAGE, messages=messages)
    objects = [
        f"{kind} {plain.text(row['metadata']['name'])} {plain.text(_state_of(kind, row))}".strip()
        for kind in ("jobs", "services", "configmaps")
        for row in run.children(kind)
    ]
    path, query = f"/api/v1/namespaces/{run.namespace}/events", {"fieldSelector": f"involvedObject.uid={run.uid}"}
    events = retry_until_available(lambda: run.cluster.call("GET", path, query=query))["items"]
    measured = Counter(site.measured(run))
    return EndState(
        status=plain.value(run.status()),
        objects=[*sorted(objects), *(f"living pod {plain.text(name)}" for name in run.living())],
        gpus=run.gpus(),
        results=sorted(plain.text(key) for key in stored.versions()),
        measured={plain.text(point): times for point, times in measured.items()},
        events=Counter(
            f"{row['type']} {row['reason']}: {plain.text(row['message']) if messages else ''}" for row in events
        ),
    )


def _state_of(kind: str, row: Mapping[str, Any]) -> str:
    if kind != "jobs":
        return ""
    rows = row["status"].get("conditions") or []
    state = next((each["type"] for each in rows if each["type"] in ("Complete", "Failed") and each["status"]), "active")
    return " ".join((state, *(each["image"] for each in row["spec"]["template"]["spec"]["containers"])))


@dataclass
class Lane:
    """One namespace with its operator, which is killed and started again by the proxy."""

    site: SimulatedSite
    proxy: FaultProxy
    uids: dict[str, str]
    versions: Sequence[Version] = VERSIONS
    """The version that runs begin with, and the other one."""
    finished: list[tuple[CrashPoint, ClusterRun]] = field(default_factory=list)
    _number: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _restarts: threading.Lock = field(default_factory=threading.Lock)

    def strike(self, kind: FaultKind) -> None:
        """Cause a fault outside of the proxy."""
        site = self.site.site
        if kind is FaultKind.NAMESPACE_LOST:
            site.cluster.call("DELETE", f"/api/v1/namespaces/{site.namespace}")
        elif kind in (FaultKind.UPGRADED, FaultKind.ROLLED_BACK):
            self.restart(self.versions[1])
        else:
            self.restart(self.versions[0])

    def restart(self, version: Version) -> None:
        """Kill the operator, and start this version of it."""
        with self._restarts:
            operator = self.site.operator
            operator.end(signal.SIGKILL)
            operator.image, operator.python = version
            operator.launch()

    def end_state(self, run: ClusterRun) -> EndState:
        """The current state of a run that has ended. Two programs may word their messages differently."""
        return end_state(self.site, run, messages=self.versions[0].python == self.versions[1].python)

    @property
    def _is_upgraded(self) -> bool:
        return (self.site.operator.image, self.site.operator.python) != self.versions[0]

    def live(self, life: Life, fault: ArmedFault | None = None) -> tuple[ClusterRun, SubjectWrites]:
        """One life until the run has its completion time."""
        with self._lock:
            self._number += 1
            name = f"life-{self._number:04}"
        if self._is_upgraded:
            self.restart(self.versions[0])
        writes = self.proxy.watch(name, fault)
        run = self._create(name, life)
        if fault and fault.kind is FaultKind.NAMESPACE_LOST:
            eventually(fault.struck.is_set, f"{name} has no write {fault.at}", LIFE_MAX_S)
            self.site.recreate_namespace()
            run = self._create(name, life)
        deadline = time.monotonic() + LIFE_MAX_S
        while not run.status().get("completionTime"):
            assert time.monotonic() < deadline, f"{name} does not end within {LIFE_MAX_S} s: {run.status()}"
            time.sleep(LOOK_S)
            if fault and fault.kind is FaultKind.ROLLED_BACK and self._is_upgraded and writes.keys[-1] != fault.at:
                self.restart(self.versions[0])
        return run, writes

    def _create(self, name: str, life: Life) -> ClusterRun:
        run = self.site.create(name, life.edits)
        self.uids[run.uid] = name
        life.act(self.site, run)
        return run

    def uninterrupted(self, life: Life) -> tuple[EndState, list[WriteKey]]:
        """The end of an uninterrupted life, and its writes in order, without repetitions."""
        run, writes = self.live(life)
        count = -1
        while count != len(writes.keys):  # until the last Events are posted
            count = len(writes.keys)
            time.sleep(2.0)
        eventually(lambda: not run.active_objects(), f"{run.name} leaves {run.active_objects()}")
        return self.end_state(run), [key for key in writes.keys if key.occurrence == 0]

    def try_point(self, life: Life, point: CrashPoint, expected: Sequence[EndState]) -> CrashPointResult:
        """One life with a fault, compared with the uninterrupted one of each version."""
        began = time.monotonic()
        fault = ArmedFault(point.kind, point.at)
        try:
            run, _ = self.live(life, fault)
        except AssertionError as failed:
            return CrashPointResult(point, True, [str(failed)], time.monotonic() - began)
        deadline = time.monotonic() + SETTLE_MAX_S
        while (lines := self.end_state(run).differences(expected)) and time.monotonic() < deadline:
            time.sleep(2 * LOOK_S)
        if point.kind is not FaultKind.NAMESPACE_LOST:  # the next life loses the namespace
            self.finished.append((point, run))
        return CrashPointResult(point, fault.struck.is_set(), lines, time.monotonic() - began)

    def later_differences(self, expected: Mapping[str, Sequence[EndState]]) -> list[str]:
        """What changed in finished runs after they were compared."""
        return [
            f"{point}: later: {line}"
            for point, run in self.finished
            for line in self.end_state(run).differences(expected[point.life])
        ]


@contextmanager
def lane(cluster: Cluster, nodes: KwokNodes, folder: Path, versions: Sequence[Version] = VERSIONS) -> Iterator[Lane]:
    """One lane, within a `with` block."""
    folder.mkdir(parents=True, exist_ok=True)
    uids: dict[str, str] = {}

    def subject_of(path: str) -> str:
        text = unquote(path)
        named = RUN_NAME.search(text)
        return named[0] if named else next((name for uid, name in uids.items() if uid in text), "")

    with (
        FaultProxy(api_upstream(cluster), Writer(describe, refusal, subject_of=subject_of)) as proxy,
        cluster.namespace("home") as namespace,
        simulated_site(
            *(cluster, folder),
            shared_nodes=nodes,
            settings=SETTINGS,
            server=proxy.url,
            home=OperatorSite(cluster, namespace),
        ) as site,
    ):
        made = Lane(site, proxy, uids, versions)
        proxy.writer.strike = made.strike
        yield made


def _ends_of_other(
    cluster: Cluster, nodes: KwokNodes, folder: Path, life: Life, versions: Sequence[Version]
) -> list[EndState]:
    """How the life ends with the other version, if that is another program."""
    if versions[0].python == versions[1].python:
        return []
    with lane(cluster, nodes, folder, versions[::-1]) as other:
        return [other.uninterrupted(life)[0]]


LANES, CONCURRENT = 3, 5
TRIES = 3
"""How many lives may pass a crash point without its write: which progress is reported depends on the timing."""


def enumerate_operator(
    cluster: Cluster,
    folder: Path,
    select: Select,
    *,
    lives: Sequence[Life] = LIVES,
    versions: Sequence[Version] = VERSIONS,
) -> Enumeration:
    """Try the selected crash points of these lives.

    Each kill and each loss of a namespace has an operator to itself, in one of LANES lanes at a time. The other faults
    concern one run only, so that CONCURRENT of them share one operator.
    """
    found = Enumeration()
    expected: dict[str, list[EndState]] = {}
    by_name = {life.name: life for life in lives}
    kills: SimpleQueue[CrashPoint] = SimpleQueue()
    alone = (*KILLS, FaultKind.NAMESPACE_LOST)

    def attempt(on: Lane, point: CrashPoint) -> None:
        for _ in range(TRIES):
            result = on.try_point(by_name[point.life], point, expected[point.life])
            if result.reached:
                break
        found.add(result)

    def kill_in_turn(number: int) -> None:
        with lane(cluster, nodes, folder / f"kills-{number}", versions) as own:
            with suppress(Empty):
                while True:
                    attempt(own, kills.get_nowait())
            found.later += own.later_differences(expected)

    with KwokNodes(cluster, nodes=8) as nodes, lane(cluster, nodes, folder / "errors", versions) as shared:
        for life in lives:
            end, writes = shared.uninterrupted(life)
            expected[life.name] = [end, *_ends_of_other(cluster, nodes, folder / f"other-{life.name}", life, versions)]
            found.lived(life.name, writes, select)
        for point in found.points:
            if point.kind in alone:
                kills.put(point)
        with ThreadPoolExecutor(CONCURRENT + LANES) as threads:
            work = [threads.submit(kill_in_turn, number) for number in range(min(LANES, kills.qsize()))]
            work += [threads.submit(attempt, shared, point) for point in found.points if point.kind not in alone]
            for each in work:
                each.result()
        found.later += shared.later_differences(expected)
    return found
