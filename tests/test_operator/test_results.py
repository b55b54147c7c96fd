"""Reading results from a real S3 server, and the failures of S3."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import boto3
import pytest
from botocore.config import Config

from specbench_api.outcome.layout import PLAN, manifest_key, run_root
from specbench_api.outcome.provenance import Fact, FactName, HostFacts, LaunchRecord, merge_facts
from specbench_api.plan.expansion import expand
from specbench_api.spec.parsing import parse_run
from specbench_api.spec.run import SpecBenchRun
from specbench_operator.cluster.api import Forbidden
from specbench_operator.cluster.results import ResultsReader, last_launch_numbers, last_stored_launch
from specbench_operator.cluster.s3 import Listing
from specbench_operator.errors import Retry
from specbench_operator.state.run import StoredResults, StoreFailure
from specbench_testing.gate_reports import gate_report
from specbench_testing.operator_builders import UID, operator_run, summary_of
from specbench_testing.ports import free_port
from specbench_testing.s3 import S3Server

PREFIX = "team/a"
ROOT = f"{PREFIX}/{run_root('default', 'demo', UID)}"
SECRET = "bench-s3"  # the name of one


@dataclass
class Bench:
    """A real S3 with a run in it, and an API server of which only Secrets are asked."""

    server: S3Server
    secrets: dict[str, Any] = field(default_factory=dict)
    refusal: Retry | None = None

    def __post_init__(self) -> None:
        access = self.server.access
        self.secrets[SECRET] = {"AWS_ACCESS_KEY_ID": access.key, "AWS_SECRET_ACCESS_KEY": access.secret}
        api: Any = self
        self.results = ResultsReader(api, timeout_s=5)
        self.client = boto3.client(
            "s3",
            endpoint_url=access.endpoint,
            region_name="us-east-1",
            aws_access_key_id=access.key,
            aws_secret_access_key=access.secret,
            config=Config(s3={"addressing_style": "path"}),
        )

    def get(self, kind: str, namespace: str, name: str) -> dict[str, Any] | None:
        """As the API server."""
        assert (kind, namespace) == ("Secret", "default")
        if self.refusal:
            raise self.refusal
        data: Mapping[str, str] | None = self.secrets.get(name)
        if data is None:
            return None
        return {"data": {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}}

    def run(self, **s3: Any) -> SpecBenchRun:
        """The run, with changes to where its results are."""
        access = self.server.access
        given = {
            "bucket": access.bucket,
            "prefix": PREFIX,
            "endpoint": access.endpoint,
            "credentialsSecret": SECRET,
            **s3,
        }
        kept = {key: value for key, value in given.items() if value is not None}
        return parse_run(operator_run({"spec.results": {"s3": kept}}))

    def put(self, key: str, data: str = "{}") -> None:
        """An object below the run's root."""
        self.client.put_object(Bucket=self.server.access.bucket, Key=f"{ROOT}/{key}", Body=data.encode())

    def look(self, **s3: Any) -> StoredResults:
        """A look that succeeds."""
        found = self.results.read(self.run(**s3))
        assert isinstance(found, StoredResults), found
        return found

    def trouble(self, **s3: Any) -> StoreFailure:
        """A look that does not."""
        found = self.results.read(self.run(**s3))
        assert isinstance(found, StoreFailure), found
        return found


@pytest.fixture
def bench(s3_server: S3Server) -> Bench:
    return Bench(s3_server)


def test_an_empty_root_holds_nothing(bench: Bench) -> None:
    assert bench.look() == StoredResults()


def test_a_run_that_carries_on_an_earlier_one_looks_below_its_uid_and_reads_its_plan(bench: Bench) -> None:
    bench.put(manifest_key("aaaa"))
    bench.put(PLAN, "what was planned")
    again = bench.run()
    results = again.spec.results.model_copy(update={"adopt": UID})
    again = again.model_copy(
        update={
            "metadata": again.metadata.model_copy(update={"uid": "another"}),
            "spec": again.spec.model_copy(update={"results": results}),
        }
    )
    assert bench.results.read(again) == StoredResults(frozenset({"aaaa"}), plan_json="what was planned")
    assert bench.look().plan_json is None, "nobody asked for it"
    bench.put("gate.json", gate_report().to_json())
    assert bench.results.read_gate(again) == gate_report(), "its gate's Job writes beside the results"


def test_the_newest_results_of_a_runs_name_are_found_and_a_bucket_that_is_away_is_told(bench: Bench) -> None:
    run = bench.run()
    assert bench.results.latest(run) is None
    bench.put(PLAN, expand(run).to_json())
    assert bench.results.latest(run) == UID
    assert bench.results.latest(bench.run(prefix="else")) is None
    gone = bench.results.latest(bench.run(bucket="no-such-bucket"))
    assert isinstance(gone, StoreFailure)
    assert gone.reason == "BucketMissing"


def test_only_points_with_a_manifest_are_measured(bench: Bench) -> None:
    bench.put("points/aaaa/records/part-0-00000.parquet")
    bench.put("points/bbbb/records/part-0-00000.parquet")
    bench.put(manifest_key("bbbb"))
    assert bench.look().measured == {"bbbb"}
    bench.put(manifest_key("aaaa"))
    assert bench.look().measured == {"aaaa", "bbbb"}


def test_results_that_are_deleted_are_not_remembered(bench: Bench) -> None:
    bench.put(manifest_key("bbbb"))
    assert bench.look().measured == {"bbbb"}
    bench.client.delete_object(Bucket=bench.server.access.bucket, Key=f"{ROOT}/{manifest_key('bbbb')}")
    assert bench.look().measured == frozenset()


def test_a_run_sees_neither_another_run_nor_another_prefix(bench: Bench) -> None:
    other = ROOT.replace(UID, "another")
    bench.client.put_object(Bucket=bench.server.access.bucket, Key=f"{other}/{manifest_key('bbbb')}", Body=b"{}")
    assert bench.look() == StoredResults()
    bench.put(manifest_key("aaaa"))
    assert bench.look(prefix="") == StoredResults()


def test_the_summary_is_read_and_read_anew_when_it_changes(bench: Bench) -> None:
    from specbench_api.plan.expansion import expand

    plan = expand(bench.run())
    bench.put("summary.json", summary_of(plan, 1).to_json())
    first = bench.look().summary
    assert first is not None
    assert first.points_measured == 1
    bench.put("summary.json", summary_of(plan, 2).to_json())
    assert bench.look().summary == summary_of(plan, 2)


def test_a_summary_of_another_version_is_trouble_that_a_person_must_see(bench: Bench) -> None:
    bench.put("summary.json", '{"schemaVersion": "specbench.io/run-summary/v9"}')
    trouble = bench.trouble()
    assert (trouble.reason, trouble.refused) == ("SummaryUnreadable", True)


@pytest.mark.parametrize(
    ("progress", "answering"),
    [
        ({"group": 3, "attempt": "1-a2b3c4", "phase": "starting"}, None),
        ({"group": 3, "attempt": "1-a2b3c4", "phase": "warmup"}, (3, 1)),
        ({"group": 3, "attempt": "1-a2b3c4", "phase": "done"}, (3, 1)),
        ({"group": 3, "phase": "warmup"}, None),
        ({"attempt": "1-a2b3c4", "phase": "warmup"}, None),
        ({"group": 3, "attempt": 1, "phase": "warmup"}, None),
        ([], None),
    ],
)
def test_an_engine_has_answered_when_its_client_is_past_its_start(
    bench: Bench, progress: Any, answering: object
) -> None:
    bench.put("progress.json", json.dumps(progress))
    assert bench.look().answering == answering


def launched(launch: str, node: str | None, asked: str = "2026-01-02T12:00:00.5Z") -> str:
    """What a client keeps of a launch, on a node or where nobody saw one."""
    place = HostFacts(facts={FactName.NODE: Fact.observed(node, "the pod")} if node else {})
    facts = merge_facts({}, place, "not asked")
    return LaunchRecord(
        launch=launch, group=0, arm="none", simulated=False, queried_at=asked, facts=facts
    ).to_json()  # fmt: skip


@pytest.mark.parametrize(
    ("kept", "node"),
    [
        ((), None),
        (("gpu-1",), "gpu-1"),
        (("gpu-1", "gpu-2"), "gpu-2"),
        ((None,), None),
    ],
)
def test_the_last_launch_is_read_only_where_it_is_asked_for(
    bench: Bench, kept: tuple[str | None, ...], node: str | None
) -> None:
    for number, each in enumerate(kept):
        bench.put(f"launches/0-{number}-{number}.json", launched(f"0-{number}-{number}", each))
    assert bench.look().last_launch is None
    found = bench.results.read(bench.run(), last_launch=True)
    assert isinstance(found, StoredResults)
    assert (found.last_launch.node if found.last_launch else None) == node


@pytest.mark.parametrize(
    ("names", "numbers"),
    [
        ((), {}),
        (("0-0-a1b2c3", "0-10-a1b2c3", "0-9-a1b2c3", "3-1-0"), {0: 10, 3: 1}),
        (("0-12345678", "0-a1b2c3d4", "g0-1-a", "0-x-a", "0-1-a.part"), {}),
    ],
    ids=["none", "the highest of each group, as a number", "of somebody's own machine, or not ours"],
)
def test_the_last_number_of_each_group_is_read_from_the_names_of_launches(
    bench: Bench, names: tuple[str, ...], numbers: dict[int, int]
) -> None:
    for name in names:
        bench.put(f"launches/{name}.json")
    assert bench.look().launches == numbers
    assert last_launch_numbers(f"any/root/launches/{name}.json" for name in names) == numbers


@dataclass
class Kept:
    """Documents of launches with the hours at which they were stored."""

    documents: Mapping[str, tuple[int, str]]

    def listing(self, _prefix: str) -> Listing:
        stored = {key: datetime(2026, 1, 2, hour, tzinfo=UTC) for key, (hour, _) in self.documents.items()}
        return Listing({}, (), stored)

    def get(self, key: str) -> bytes:
        return self.documents[key][1].encode()


@pytest.mark.parametrize(
    ("documents", "node"),
    [
        ({"b": (9, launched("0-1-b", "old")), "a": (12, launched("1-0-a", "new"))}, "new"),
        ({"a": (9, launched("0-0-a", "gpu-1", asked="2026-01-02T12:00:00"))}, None),
        ({"a": (9, launched("0-0-a", "gpu-1", asked="noon"))}, None),
        ({"a": (9, "{}")}, None),
    ],
    ids=["the newest, whatever its name", "a time without a zone", "no time", "another version's"],
)
def test_the_launch_that_was_stored_last_counts_where_it_can_be_read(
    documents: Mapping[str, tuple[int, str]], node: str | None
) -> None:
    bucket: Any = Kept(documents)
    found = last_stored_launch(bucket, bucket.listing("root/launches/").modified)
    assert (found.node if found else None) == node


def test_when_a_sign_of_life_was_stored_is_told_by_the_store(bench: Bench) -> None:
    bench.put("progress.json", json.dumps({"group": 0, "attempt": "0-a", "phase": "measuring"}))
    told = bench.look()
    assert told.answered_at is not None
    assert abs((datetime.now(UTC) - told.answered_at).total_seconds()) < 60


def test_a_gates_answer_is_read_and_one_that_nobody_can_read_is_none(bench: Bench) -> None:
    assert bench.results.read_gate(bench.run()) is None
    bench.put("gate.json", gate_report().to_json())
    assert bench.results.read_gate(bench.run()) == gate_report()
    bench.put("gate.json", "{}")
    assert bench.results.read_gate(bench.run()) is None
    trouble = bench.results.read_gate(bench.run(bucket="nowhere-at-all"))
    assert isinstance(trouble, StoreFailure)
    assert trouble.reason == "BucketMissing"


def test_a_bucket_that_does_not_exist_is_named(bench: Bench) -> None:
    trouble = bench.trouble(bucket="nowhere-at-all")
    assert (trouble.reason, trouble.refused) == ("BucketMissing", True)
    assert "nowhere-at-all" in trouble.message


def test_wrong_credentials_are_named(bench: Bench) -> None:
    bench.secrets[SECRET] = {"AWS_ACCESS_KEY_ID": "wrong", "AWS_SECRET_ACCESS_KEY": "wrong"}
    trouble = bench.trouble()
    assert (trouble.reason, trouble.refused) == ("CredentialsRefused", True)


def test_a_server_that_is_away_is_waited_for_and_found_again(bench: Bench) -> None:
    bench.put(manifest_key("bbbb"))
    bench.server.stop()
    trouble = bench.trouble()
    assert (trouble.reason, trouble.refused) == ("S3Away", False)
    assert trouble == bench.trouble(), "the same words each time, or status would never come to rest"
    bench.server.start()
    assert bench.look().measured == {"bbbb"}


def test_an_address_where_nothing_listens_is_away(bench: Bench) -> None:
    assert bench.trouble(endpoint=f"http://127.0.0.1:{free_port()}").reason == "S3Away"


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (None, "SecretMissing"),
        ({}, "SecretIncomplete"),
        ({"AWS_ACCESS_KEY_ID": "a"}, "SecretIncomplete"),
        ({"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": ""}, "SecretIncomplete"),
    ],
)
def test_a_secret_that_does_not_serve_is_named_with_what_it_lacks(bench: Bench, data: Any, reason: str) -> None:
    bench.secrets = {SECRET: data} if data is not None else {}
    trouble = bench.trouble()
    assert (trouble.reason, trouble.refused) == (reason, True)
    assert SECRET in trouble.message


def test_a_secret_that_may_not_be_read_is_named_with_the_right_that_lacks(bench: Bench) -> None:
    bench.refusal = Forbidden("Forbidden", "secrets is forbidden")
    assert bench.trouble().reason == "SecretForbidden"


def test_an_api_server_that_is_away_is_not_taken_for_s3(bench: Bench) -> None:
    bench.refusal = Retry("ApiUnreachable", "refused")
    with pytest.raises(Retry):
        bench.results.read(bench.run())


def test_without_a_secret_the_operators_own_identity_is_used(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.put(manifest_key("bbbb"))
    assert bench.look(credentialsSecret=None).measured == {"bbbb"}
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    fresh = replace(bench)
    assert fresh.trouble(credentialsSecret=None).reason == "CredentialsMissing"


def test_memory_is_bounded(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specbench_operator.cluster.results.CACHED_MAX", 1)
    bench.put(manifest_key("bbbb"))
    assert bench.look().measured == {"bbbb"}
    assert bench.look(prefix="").measured == frozenset()
    assert bench.look().measured == {"bbbb"}
