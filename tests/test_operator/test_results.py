"""Reading results from a real S3 server, and the failures of S3."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import boto3
import pytest
from botocore.config import Config

from specbench_api.outcome.layout import CHECK_CONTENT, CHECK_OBJECT, PLAN, ended_key, manifest_key, run_root
from specbench_api.outcome.provenance import Fact, FactName, HostFacts, LaunchRecord, merge_facts
from specbench_api.plan.expansion import expand
from specbench_api.spec.parsing import parse_run
from specbench_api.spec.run import SpecBenchRun
from specbench_client.stored_runs.status_builder import status_document
from specbench_operator.cluster.kubernetes_api import Forbidden
from specbench_operator.cluster.results import (
    STATUS_MAX_BYTES,
    ResultsReader,
    last_launch_numbers,
    last_stored_launch,
)
from specbench_operator.cluster.secrets import SecretReader
from specbench_operator.errors import Retry
from specbench_operator.state.run import StoredResults, StoreFailure
from specbench_testing.fake_api import FakeApi, FakeBucket
from specbench_testing.gate_reports import gate_report, gate_status
from specbench_testing.http_server import Reply, Request, http_server
from specbench_testing.operator_builders import UID, operator_run, summary_of
from specbench_testing.s3 import S3Server

PREFIX = "team/a"
ROOT = f"{PREFIX}/{run_root('default', 'demo', UID)}"
SECRET = "bench-s3"  # the name of a Secret


@dataclass
class ResultsHarness:
    """A real S3 with a run in it, and a fake API server with Secrets."""

    server: S3Server
    api: FakeApi = field(default_factory=FakeApi)

    def __post_init__(self) -> None:
        access = self.server.access
        self.keys = {"AWS_ACCESS_KEY_ID": access.key, "AWS_SECRET_ACCESS_KEY": access.secret}
        self.keep_secret(self.keys)
        self.results = ResultsReader(SecretReader(self.api), timeout_s=5)
        self.client = boto3.client(
            "s3",
            endpoint_url=access.endpoint,
            region_name="us-east-1",
            aws_access_key_id=access.key,
            aws_secret_access_key=access.secret,
            config=Config(s3={"addressing_style": "path"}),
        )

    def keep_secret(self, values: Mapping[str, str]) -> None:
        """Create or replace the Secret of the run."""
        data = {key: base64.b64encode(value.encode()).decode() for key, value in values.items()}
        self.api.put({"kind": "Secret", "metadata": {"name": SECRET}, "data": data})

    def run(self, **s3: Any) -> SpecBenchRun:
        """The run, with changes to its S3 location."""
        access = self.server.access
        given = {
            "bucket": access.bucket,
            "prefix": PREFIX,
            "endpoint": access.endpoint,
            "credentialsSecretRef": {"name": SECRET},
            **s3,
        }
        kept = {key: value for key, value in given.items() if value is not None}
        return parse_run(operator_run({"spec.results": {"s3": kept}}))

    def put(self, key: str, data: str = "{}") -> None:
        """Store an object below the run's root."""
        self.client.put_object(Bucket=self.server.access.bucket, Key=f"{ROOT}/{key}", Body=data.encode())

    def read(self, **s3: Any) -> StoredResults:
        """Read results; fails if S3 reports a failure."""
        found = self.results.read(self.run(**s3))
        assert isinstance(found, StoredResults), found
        return found

    def read_failure(self, **s3: Any) -> StoreFailure:
        """Read results; fails unless S3 reports a failure."""
        found = self.results.read(self.run(**s3))
        assert isinstance(found, StoreFailure), found
        return found


@pytest.fixture
def harness(s3_server: S3Server) -> ResultsHarness:
    return ResultsHarness(s3_server)


def test_an_adopting_run_reads_results_and_plan_below_the_adopted_uid(harness: ResultsHarness) -> None:
    harness.put(manifest_key("aaaa"))
    harness.put(PLAN, "what was planned")
    again = harness.run()
    results = again.spec.results.model_copy(update={"adopt": UID})
    again = again.model_copy(
        update={
            "metadata": again.metadata.model_copy(update={"uid": "another"}),
            "spec": again.spec.model_copy(update={"results": results}),
        }
    )
    assert harness.results.read(again) == StoredResults(frozenset({"aaaa"}), plan_json="what was planned")
    assert harness.read().plan_json is None, "a run without adoption reads no plan"
    harness.put("gate.json", gate_report().to_json())
    assert harness.results.read_gate(again) == gate_status(), "the gate's Job writes next to the results"


def test_latest_finds_the_newest_results_of_a_run_name_or_reports_the_failure(harness: ResultsHarness) -> None:
    run = harness.run()
    assert harness.results.latest(run) is None
    harness.put(PLAN, expand(run).to_json())
    assert harness.results.latest(run) == UID
    assert harness.results.latest(harness.run(prefix="else")) is None
    gone = harness.results.latest(harness.run(bucket="no-such-bucket"))
    assert isinstance(gone, StoreFailure)
    assert gone.reason == "BucketMissing"


def test_only_points_with_a_manifest_are_measured(harness: ResultsHarness) -> None:
    harness.put("points/aaaa/records/0-0-a.parquet")
    harness.put("points/bbbb/records/0-0-a.parquet")
    harness.put(manifest_key("bbbb"))
    assert harness.read().measured == {"bbbb"}
    harness.put(manifest_key("aaaa"))
    assert harness.read().measured == {"aaaa", "bbbb"}


def test_a_run_does_not_see_other_runs_or_prefixes(harness: ResultsHarness) -> None:
    other = ROOT.replace(UID, "another")
    harness.client.put_object(Bucket=harness.server.access.bucket, Key=f"{other}/{manifest_key('bbbb')}", Body=b"{}")
    assert harness.read() == StoredResults()
    harness.put(manifest_key("aaaa"))
    assert harness.read(prefix="") == StoredResults()


def test_status_json_is_read_at_every_look(harness: ResultsHarness) -> None:
    plan = expand(harness.run())
    for points in (1, 2):
        stored = status_document(summary_of(plan, points), plan)
        harness.put("status.json", stored.to_json())
        assert harness.read().results == stored


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ('{"schemaVersion": "specbench.io/status/v9"}', "StatusUnreadable"),
        (" " * (STATUS_MAX_BYTES + 1), "AnswerTooLarge"),
    ],
)
def test_a_status_document_that_does_not_fit_is_a_permanent_failure(
    harness: ResultsHarness, data: str, reason: str
) -> None:
    harness.put("status.json", data)
    read_failure = harness.read_failure()
    assert (read_failure.reason, read_failure.refused) == (reason, True)


@pytest.mark.parametrize(
    ("progress", "answering"),
    [
        ({"group": 3, "attempt": "1-a2b3c4", "phase": "starting"}, None),
        ({"group": 3, "attempt": "1-a2b3c4", "phase": "warmup"}, (3, 1)),
        ({"group": 3, "attempt": "1-a2b3c4", "phase": "done"}, (3, 1)),
        ({"group": 3, "phase": "warmup"}, None),
        ({"attempt": "1-a2b3c4", "phase": "warmup"}, None),
        ({"group": 3, "attempt": 1, "phase": "warmup"}, None),
        ({"group": float("inf"), "attempt": "1-a2b3c4", "phase": "warmup"}, None),
        ([], None),
    ],
)
def test_an_engine_has_answered_after_the_start_phase_of_its_client(
    harness: ResultsHarness, progress: Any, answering: object
) -> None:
    harness.put("progress.json", json.dumps(progress))
    assert harness.read().answering == answering


def launched(launch: str, node: str | None, queried_at: str = "2026-01-02T12:00:00.5Z") -> str:
    """The stored record of a launch on this node, or on an unknown node."""
    place = HostFacts(facts={FactName.NODE: Fact.observed(node, "the pod")} if node else {})
    facts = merge_facts({}, place, "not asked")
    return LaunchRecord(
        launch=launch, group=0, arm="none", simulated=False, queried_at=queried_at, facts=facts
    ).to_json()  # fmt: skip


def test_the_last_launch_is_read_only_on_request(harness: ResultsHarness) -> None:
    for number, node in enumerate(("gpu-1", "gpu-2")):
        harness.put(f"launches/0-{number}-{number}.json", launched(f"0-{number}-{number}", node))
    assert harness.read().last_launch is None
    found = harness.results.read(harness.run(), last_launch=True)
    assert isinstance(found, StoredResults)
    assert found.last_launch is not None
    assert found.last_launch.node == "gpu-2"


@pytest.mark.parametrize(
    ("names", "numbers"),
    [
        ((), {}),
        (("0-0-a1b2c3", "0-10-a1b2c3", "0-9-a1b2c3", "3-1-0"), {0: 10, 3: 1}),
        (("0-12345678", "0-a1b2c3d4", "g0-1-a", "0-x-a", "0-1-a.part"), {}),
        (("0-9999999999-a", f"0-{'9' * 200}-a", "0-\u0663-a"), {}),
    ],
    ids=["none", "highest number of each group", "of a local run, or not ours", "too large, or not ASCII"],
)
def test_last_launch_numbers_are_parsed_from_the_object_names(
    harness: ResultsHarness, names: tuple[str, ...], numbers: dict[int, int]
) -> None:
    for name in names:
        harness.put(f"launches/{name}.json")
    assert harness.read().launches == numbers
    assert last_launch_numbers(f"any/root/launches/{name}.json" for name in names) == numbers


def test_groups_that_ended_early_are_read_from_the_object_names(harness: ResultsHarness) -> None:
    for name in (ended_key(0, 14), ended_key(0, 12), ended_key(3, 20), "ended/x-1.json", "ended/1-99999.json"):
        harness.put(name)
    assert harness.read().ended == {0: 12, 3: 20}


@pytest.mark.parametrize(
    ("documents", "node"),
    [
        ({"b": (9, launched("0-1-b", "old")), "a": (12, launched("1-0-a", "new"))}, "new"),
        ({"a": (9, launched("0-0-a", "gpu-1", queried_at="2026-01-02T12:00:00"))}, None),
        ({"a": (9, launched("0-0-a", "gpu-1", queried_at="noon"))}, None),
        ({"a": (9, "{}")}, None),
        ({"a": (9, launched("0-0-a", None))}, None),
        ({}, None),
    ],
    ids=["newest, whatever its name", "time without a zone", "no time", "other version", "no node", "none"],
)
def test_the_last_readable_stored_launch_counts(documents: Mapping[str, tuple[int, str]], node: str | None) -> None:
    bucket: Any = FakeBucket(documents)
    found = last_stored_launch(bucket, bucket.listing("").modified)
    assert (found.node if found else None) == node


def test_the_time_of_the_last_progress_is_the_stores_modification_time(harness: ResultsHarness) -> None:
    harness.put("progress.json", json.dumps({"group": 0, "attempt": "0-a", "phase": "measuring"}))
    stored = harness.client.head_object(Bucket=harness.server.access.bucket, Key=f"{ROOT}/progress.json")
    assert harness.read().answered_at == stored["LastModified"]


def test_an_unreadable_gate_report_is_none(harness: ResultsHarness) -> None:
    assert harness.results.read_gate(harness.run()) is None
    harness.put("gate.json", gate_report().to_json())
    assert harness.results.read_gate(harness.run()) == gate_status()
    harness.put("gate.json", "{}")
    assert harness.results.read_gate(harness.run()) is None
    read_failure = harness.results.read_gate(harness.run(bucket="nowhere-at-all"))
    assert isinstance(read_failure, StoreFailure)
    assert read_failure.reason == "BucketMissing"


def test_a_missing_bucket_is_reported_by_name(harness: ResultsHarness) -> None:
    read_failure = harness.read_failure(bucket="nowhere-at-all")
    assert (read_failure.reason, read_failure.refused) == ("BucketMissing", True)
    assert "nowhere-at-all" in read_failure.message


def test_a_secret_that_is_rotated_during_a_run_is_used_at_the_next_look(harness: ResultsHarness) -> None:
    harness.put(manifest_key("bbbb"))
    assert harness.read().measured == {"bbbb"}
    harness.keep_secret(dict.fromkeys(harness.keys, "wrong"))
    failure = harness.read_failure()
    assert (failure.reason, failure.refused) == ("CredentialsRefused", True)
    harness.keep_secret(harness.keys)
    assert harness.read().measured == {"bbbb"}


def test_an_unreachable_server_is_reported_and_read_again_when_it_returns(harness: ResultsHarness) -> None:
    harness.put(manifest_key("bbbb"))
    harness.server.stop()
    read_failure = harness.read_failure()
    assert (read_failure.reason, read_failure.refused) == ("S3Away", False)
    assert read_failure == harness.read_failure(), "the message is stable, or the status would change each time"
    harness.server.start()
    assert harness.read().measured == {"bbbb"}


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (None, "SecretMissing"),
        ({}, "SecretIncomplete"),
        ({"AWS_ACCESS_KEY_ID": "a"}, "SecretIncomplete"),
        ({"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": ""}, "SecretIncomplete"),
    ],
)
def test_a_missing_or_incomplete_secret_is_reported_by_name(harness: ResultsHarness, data: Any, reason: str) -> None:
    harness.api.objects.clear()
    if data is not None:
        harness.keep_secret(data)
    read_failure = harness.read_failure()
    assert (read_failure.reason, read_failure.refused) == (reason, True)
    assert SECRET in read_failure.message


def test_a_forbidden_secret_is_reported(harness: ResultsHarness) -> None:
    harness.api.refuse["get", "Secret"] = Forbidden("Forbidden", "secrets is forbidden")
    assert harness.read_failure().reason == "SecretForbidden"


def test_an_api_server_failure_is_not_reported_as_an_s3_failure(harness: ResultsHarness) -> None:
    harness.api.refuse["get", "Secret"] = Retry("ApiUnreachable", "refused")
    with pytest.raises(Retry):
        harness.results.read(harness.run())


def test_without_a_secret_the_operators_own_credentials_are_used(
    harness: ResultsHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.put(manifest_key("bbbb"))
    assert harness.read(credentialsSecretRef=None).measured == {"bbbb"}
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    fresh = replace(harness)
    assert fresh.read_failure(credentialsSecretRef=None).reason == "CredentialsMissing"


# Before the first launch of a run, the store is tried with the run's own keys.


def checked(harness: ResultsHarness) -> bytes | None:
    """The object that the operator writes; None if it does not exist."""
    try:
        return harness.client.get_object(Bucket=harness.server.access.bucket, Key=f"{PREFIX}/{CHECK_OBJECT}")[
            "Body"
        ].read()
    except harness.client.exceptions.NoSuchKey:
        return None


def test_conditional_writes_are_tried_before_the_first_launch(harness: ResultsHarness) -> None:
    harness.read()
    assert checked(harness) == CHECK_CONTENT
    harness.client.delete_object(Bucket=harness.server.access.bucket, Key=f"{PREFIX}/{CHECK_OBJECT}")
    harness.read()
    assert checked(harness) is None, "once for each store and its keys"

    harness.put(manifest_key("aaaa"))
    later = ResultsHarness(harness.server)
    later.read()
    assert checked(later) is None, "something was measured already"


@pytest.mark.parametrize(
    ("answers", "reason", "words"),
    [
        ([(412, "PreconditionFailed")], None, ""),
        ([(200, ""), (412, "PreconditionFailed")], None, ""),
        ([(200, ""), (409, "ConditionalRequestConflict")], None, ""),
        ([(200, ""), (200, "")], "StoreRefused", "overwrote team/a/specbench-check/object"),
        ([(501, "NotImplemented")], "StoreRefused", "If-None-Match"),
        ([(400, "InvalidArgument")], "StoreRefused", "If-None-Match"),
        ([(403, "AccessDenied")], "CredentialsRefused", "read and write"),
        ([(503, "SlowDown")] * 2, "S3Away", "SlowDown"),
    ],
    ids=["kept", "new", "conflict", "ignored", "501", "400", "read only", "busy"],
)
def test_a_store_without_conditional_writes_is_refused_before_the_first_launch(
    answers: list[tuple[int, str]], reason: str | None, words: str, harness: ResultsHarness
) -> None:
    left = iter(answers)

    def answer(request: Request) -> Reply:
        if request.method != "PUT":
            return 200, {}, b"<ListBucketResult></ListBucketResult>"
        assert request.headers["If-None-Match"] == "*"
        assert request.body == CHECK_CONTENT
        status, code = next(left)
        return status, {}, f"<Error><Code>{code}</Code></Error>".encode() if code else b""

    with http_server(answer) as port:
        found = harness.results.read(harness.run(endpoint=f"http://127.0.0.1:{port}"))

    assert next(left, None) is None
    assert (found.reason if isinstance(found, StoreFailure) else None) == reason
    if isinstance(found, StoreFailure):
        assert words in found.message
