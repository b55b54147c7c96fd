"""Specs that must be refused or accepted: one table for the API server and for `specbench validate`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from specbench_testing.resources import MISSING, Resource, endpoint_edits, resource

DRAFTER = {"name": "other", "method": "draft_model", "model": "acme/draft"}
WORKLOAD = {"name": "chat", "dataset": {"source": "jsonl", "uri": "other.jsonl"}}

MIX: dict[str, Any] = {
    "source": "mix",
    "members": [
        {"name": "qa", "weight": 3, "source": "jsonl", "uri": "qa.jsonl", "outputTokens": {"min": 5, "max": 150}},
        {"name": "code", "weight": 1, "source": "humaneval", "config": "raw", "count": 80},
    ],
}


@dataclass(frozen=True)
class InvalidSpecCase:
    """A valid spec made invalid by `edits`. Both sides report `path`; the server's message contains `remedy`.

    `locally` is the text of our own message where it differs from the server's. `stage` is where our side refuses the
    spec: reading the resource, or expanding it into a plan (pairs of engine and drafter).
    """

    why: str
    edits: Mapping[str, Any]
    path: str
    remedy: str
    locally: str = ""
    stage: str = "reading"

    @property
    def resource(self) -> Resource:
        """The invalid spec."""
        return resource(self.edits)


LONG_SESSIONS = {"turns": 2, "turnTokens": 16, "answerTokens": 5000}
"""Longer answers than the spec's `output.maxTokens`."""


def _pair(method: str, remedy: str, **fields: Any) -> InvalidSpecCase:
    drafter = {"name": "d", "method": method, **fields}
    return InvalidSpecCase(
        f"llama-cpp does not support {method}",
        {"spec.engine.kind": "llama-cpp", "spec.drafters[0]": drafter},
        "drafters[",
        remedy,
        stage="expanding",
    )


def _dataset(why: str, dataset: Mapping[str, Any], remedy: str, below: str = "") -> InvalidSpecCase:
    path = "spec.workloads[0].dataset" + (f".{below}" if below else "")
    return InvalidSpecCase(why, {"spec.workloads[0].dataset": dataset}, path, remedy)


def _template(
    why: str, template: Mapping[str, Any], remedy: str, below: str = "", locally: str = ""
) -> InvalidSpecCase:
    path = "spec.workloads[0].chatTemplate" + (f".{below}" if below else "")
    return InvalidSpecCase(why, {"spec.workloads[0].chatTemplate": template}, path, remedy, locally)


def _pod_template(spec: Mapping[str, Any]) -> dict[str, Any]:
    return {"spec.placement.template.spec": spec}


INVALID_SPECS = (
    _template("a template without appliedBy", {"kwargs": {"a": 1}}, "Required", "appliedBy", "Field required"),
    _template(
        "an engine's template with a name", {"appliedBy": "Engine", "name": "tool_use"}, "need appliedBy: Client"
    ),
    _template(
        "an engine's template with a date", {"appliedBy": "Engine", "date": "2026-01-01"}, "need appliedBy: Client"
    ),
    _template(
        "a custom template with a name",
        {"appliedBy": "Client", "template": "a", "name": "b"},
        "set either chatTemplate.template",
    ),
    _template("a date that does not exist", {"appliedBy": "Client", "date": "2026-02-31"}, "date", "date", "day"),
    InvalidSpecCase(
        "a required field is missing", {"spec.model": MISSING}, "spec.model", "Required value", "field required"
    ),
    InvalidSpecCase(
        "a required list is missing", {"spec.workloads": MISSING}, "spec.workloads", "Required value", "required"
    ),
    InvalidSpecCase("the load is missing", {"spec.load": MISSING}, "spec.load", "Required value", "field required"),
    *(
        InvalidSpecCase(
            f"an endpoint with {len(given)} addresses",
            {**endpoint_edits("a"), "spec.engine.endpoints[0]": {"name": "a", **given}},
            "spec.engine.endpoints[0]",
            "needs either url or serviceRef",
        )
        for given in ({}, {"url": "http://a:8000", "serviceRef": {"name": "a", "port": 8000}})
    ),
    InvalidSpecCase(
        "a Service with a path as its name",
        {**endpoint_edits("a"), "spec.engine.endpoints[0]": {"name": "a", "serviceRef": {"name": "a/b", "port": 1}}},
        "spec.engine.endpoints[0].serviceRef.name",
        "should match",
    ),
    InvalidSpecCase("a required field is null", {"spec.load": None}, "spec.load", "Required value", "field required"),
    InvalidSpecCase("the spec is missing", {"spec": MISSING}, "spec", "Required value", "field required"),
    InvalidSpecCase(
        "a field is mistyped", {"spec.engine.knid": "x"}, "spec.engine.knid", "unknown field", "did you mean kind"
    ),
    InvalidSpecCase("a top-level field is mistyped", {"spce": {}}, "spce", "unknown field", "did you mean spec"),
    InvalidSpecCase(
        "a field in a list is mistyped",
        {"spec.drafters[0].numSpeculativeToken": 4},
        "spec.drafters[0].numSpeculativeToken",
        "unknown field",
        "did you mean numSpeculativeTokens",
    ),
    InvalidSpecCase(
        "a field in a list has its name in Python",
        {"spec.drafters[0].num_speculative_tokens": 4},
        "spec.drafters[0].num_speculative_tokens",
        "unknown field",
        "did you mean numSpeculativeTokens",
    ),
    InvalidSpecCase(
        "a field has its name in Python",
        {"spec.workloads[0].output": {"max_tokens": 8}},
        "spec.workloads[0].output.max_tokens",
        "unknown field",
        "did you mean maxTokens",
    ),
    InvalidSpecCase(
        "a field one level too high",
        {"spec.workloads[0].temperature": 1},
        "spec.workloads[0].temperature",
        "unknown field",
        "did you mean sampling.temperature?",
    ),
    InvalidSpecCase(
        "a field of the rows of a list",
        {"spec.method": "ngram"},
        "spec.method",
        "unknown field",
        "did you mean drafters[].method?",
    ),
    InvalidSpecCase(
        "an unknown engine",
        {"spec.engine.kind": "vlm"},
        "spec.engine.kind",
        '"simulator", "vllm", "sglang"',
        "'llama-cpp'",
    ),
    InvalidSpecCase(
        "an unknown method", {"spec.drafters[0].method": "magic"}, "spec.drafters[0].method", '"ngram"', "'ngram'"
    ),
    InvalidSpecCase(
        "an unknown order", {"spec.load.order": "Random"}, "spec.load.order", '"Interleaved"', "'Interleaved'"
    ),
    InvalidSpecCase(
        "an unknown source",
        {"spec.workloads[0].dataset.source": "xlsx"},
        "spec.workloads[0].dataset.source",
        '"jsonl"',
        "'parquet'",
    ),
    _dataset("a file without a location", {"source": "csv"}, "set dataset.uri"),
    _dataset("a mix with a file", {**MIX, "uri": "x.jsonl"}, "dataset.pvc cannot be used with source mix"),
    _dataset("a mix without members", {"source": "mix"}, "source mix needs dataset.members"),
    _dataset(
        "members without a mix", {"source": "gsm8k", "members": MIX["members"]}, "source mix needs dataset.members"
    ),
    _dataset("a mix with categories", {**MIX, "categories": ["qa"]}, "a mix itself takes only dataset.count"),
    _dataset(
        "a mix in a mix",
        {"source": "mix", "members": [{"name": "a", "weight": 1, "source": "mix"}]},
        "a member of a mix cannot be a mix",
        below="members",
    ),
    _dataset(
        "an unknown config",
        {"source": "gpqa", "config": "gold"},
        "dataset.config is not valid for this source",
    ),
    _dataset(
        "a config of a source without configs", {"source": "gsm8k", "config": "main"}, "dataset.config is not valid"
    ),
    _dataset(
        "a revision of a file",
        {"source": "gsm8k", "uri": "g.jsonl", "revision": "abc"},
        "dataset.revision is a revision on the hub",
    ),
    _dataset(
        "a column of a published dataset",
        {"source": "gsm8k", "promptColumn": "question"},
        "dataset.promptColumn is only valid with source jsonl",
    ),
    _dataset(
        "entropy tiers of another source",
        {"source": "gsm8k", "entropy": ["Low"]},
        "dataset.entropy needs source speed-bench",
    ),
    _dataset(
        "entropy tiers of the qualitative config",
        {"source": "speed-bench", "config": "qualitative", "entropy": ["Low"]},
        "dataset.entropy needs source speed-bench",
    ),
    _dataset(
        "a file with two locations",
        {"source": "csv", "uri": "x.csv", "pvc": {"claimName": "data", "path": "x.csv"}},
        "dataset.uri and dataset.pvc both name the file: remove one",
    ),
    _dataset(
        "a file outside its volume",
        {"source": "csv", "pvc": {"claimName": "data", "path": "../x.csv"}},
        "leaves the volume",
        below="pvc",
    ),
    InvalidSpecCase(
        "sessions with longer answers than the workload",
        {"spec.workloads[0].dataset": {"source": "sessions", "count": 5, "sessions": LONG_SESSIONS}},
        "spec.workloads[0]",
        "sessions.answerTokens is larger than output.maxTokens",
    ),
    InvalidSpecCase(
        "a member of a mix with longer answers than the workload",
        {
            "spec.workloads[0].dataset": {
                "source": "mix",
                "members": [{"name": "a", "weight": 1, "source": "sessions", "count": 5, "sessions": LONG_SESSIONS}],
            }
        },
        "spec.workloads[0]",
        "sessions.answerTokens is larger than output.maxTokens",
    ),
    InvalidSpecCase(
        "a system prompt of words and of text",
        {"spec.workloads[0].systemPrompt": {"tokens": 5, "text": "Be kind."}},
        "spec.workloads[0].systemPrompt",
        "systemPrompt needs exactly one of tokens",
    ),
    _dataset(
        "a range with min above max",
        {"source": "gsm8k", "inputTokens": {"min": 9, "max": 3}},
        "min is larger than max",
        below="inputTokens",
    ),
    InvalidSpecCase(
        "an unknown baseline value", {"spec.baseline": "No"}, "spec.baseline", '"Measure", "Skip"', "'Skip'"
    ),
    InvalidSpecCase(
        "a string for an integer",
        {"spec.load.repeats": "3"},
        "spec.load.repeats",
        "must be of type integer",
        "valid integer",
    ),
    InvalidSpecCase(
        "a number for a string",
        {"spec.engine.version": 1},
        "spec.engine.version",
        "of type string",
        "valid string",
    ),
    InvalidSpecCase(
        "a string for a boolean", {"spec.suspend": "no"}, "spec.suspend", "of type boolean", "valid boolean"
    ),
    InvalidSpecCase(
        "a scalar for a list",
        {"spec.load.concurrency": 8},
        "spec.load.concurrency",
        "type array",
        "valid array",
    ),
    InvalidSpecCase("a null in a list", {"spec.drafters[1]": None}, "spec.drafters[1]", "type object", "object"),
    InvalidSpecCase(
        "an empty load", {"spec.load.concurrency": []}, "spec.load.concurrency", "at least 1 items", "at least 1 item"
    ),
    InvalidSpecCase("no workload", {"spec.workloads": []}, "spec.workloads", "at least 1 items", "at least 1 item"),
    InvalidSpecCase(
        "a concurrency of zero",
        {"spec.load.concurrency": [0]},
        "spec.load.concurrency[0]",
        "greater than or equal to 1",
    ),
    InvalidSpecCase(
        "a concurrency above the maximum",
        {"spec.load.concurrency": [5000]},
        "spec.load.concurrency[0]",
        "less than or equal to 4096",
    ),
    InvalidSpecCase(
        "a duplicate concurrency",
        {"spec.load.concurrency": [4, 8, 4]},
        "spec.load.concurrency",
        "Duplicate value",
        "twice",
    ),
    InvalidSpecCase(
        "too many concurrency levels",
        {"spec.load.concurrency": list(range(1, 18))},
        "spec.load.concurrency",
        "at most 16 items",
    ),
    InvalidSpecCase(
        "a closed and an open loop",
        {"spec.load.rate": [2], "spec.load.slots": 8},
        "spec.load",
        "exactly one of load.concurrency (closed loop) and load.rate (open loop",
    ),
    InvalidSpecCase(
        "neither a closed nor an open loop", {"spec.load": {"slots": 8}}, "spec.load", "exactly one of load.concurrency"
    ),
    InvalidSpecCase(
        "arrivals in a closed loop",
        {"spec.load.arrival": {"process": "Poisson"}},
        "spec.load",
        "only an open loop has load.arrival",
    ),
    InvalidSpecCase(
        "arrivals without a rate",
        {"spec.load": {"arrival": {"process": "Poisson"}, "slots": 8}},
        "spec.load",
        "exactly one of load.concurrency",
    ),
    InvalidSpecCase(
        "a latency target that needs streams",
        {"spec.slo": {"ttftMs": 200}, "spec.workloads[0].output": {"stream": False}},
        "spec",
        "slo.ttftMs and slo.tpotMs cannot be measured without streaming",
    ),
    InvalidSpecCase(
        "an open loop without slots", {"spec.load": {"rate": [2]}}, "spec.load", "load.rate needs load.slots"
    ),
    InvalidSpecCase(
        "fewer slots than streams",
        {"spec.load": {"concurrency": [2, 16], "slots": 8}},
        "spec.load",
        "load.slots is smaller than the highest load.concurrency",
    ),
    InvalidSpecCase(
        "requests and durationSeconds",
        {"spec.load.requests": 8, "spec.load.durationSeconds": 60},
        "spec.load",
        "set only one of load.requests, load.requestsPerStream and load.durationSeconds",
    ),
    InvalidSpecCase(
        "requests and requestsPerStream",
        {"spec.load.requests": 8, "spec.load.requestsPerStream": 4},
        "spec.load",
        "set only one of load.requests, load.requestsPerStream and load.durationSeconds",
    ),
    InvalidSpecCase(
        "requestsPerStream without streams",
        {"spec.load": {"rate": [1], "slots": 8, "requestsPerStream": 4}},
        "spec.load",
        "load.requestsPerStream needs load.concurrency",
    ),
    InvalidSpecCase("a rate of zero", {"spec.load": {"rate": [0], "slots": 8}}, "spec.load.rate[0]", "greater than 0"),
    InvalidSpecCase(
        "too many conversations",
        {"spec.load": {"rate": [1, 100_000], "slots": 1, "durationSeconds": 86_400}},
        "spec.load",
        "more than 1,000,000 conversations per point",
    ),
    InvalidSpecCase(
        "less than one conversation",
        {"spec.load": {"rate": [0.001, 5], "slots": 1, "durationSeconds": 1}},
        "spec.load",
        "less than one conversation",
    ),
    InvalidSpecCase(
        "requests over more than a day",
        {"spec.load": {"rate": [2, 0.01], "slots": 1, "requests": 1000}},
        "spec.load",
        "over more than 86400 s",
    ),
    InvalidSpecCase(
        "a rate near zero", {"spec.load": {"rate": [1e-12], "slots": 1}}, "spec.load", "over more than 86400 s"
    ),
    InvalidSpecCase(
        "a duplicate rate",
        {"spec.load": {"rate": [0.5, 2, 0.5], "slots": 8}},
        "spec.load.rate",
        "Duplicate value",
        "twice",
    ),
    InvalidSpecCase(
        "a rate that is not a list",
        {"spec.load": {"rate": 2, "slots": 8}},
        "spec.load.rate",
        "type array",
        "valid array",
    ),
    InvalidSpecCase(
        "an unknown process",
        {"spec.load": {"rate": [2], "slots": 8, "arrival": {"process": "Uniform"}}},
        "spec.load.arrival.process",
        '"Gamma", "Trace"',
        "'Trace'",
    ),
    InvalidSpecCase(
        "a trace without a uri",
        {"spec.load": {"slots": 8, "arrival": {"process": "Trace"}}},
        "spec.load.arrival",
        "process Trace needs load.arrival.uri",
    ),
    InvalidSpecCase(
        "a uri without process Trace",
        {"spec.load": {"rate": [2], "slots": 8, "arrival": {"process": "Poisson", "uri": "trace.csv"}}},
        "spec.load.arrival",
        "load.arrival.uri needs load.arrival.process Trace",
    ),
    InvalidSpecCase(
        "burstiness without process Gamma",
        {"spec.load": {"rate": [2], "slots": 8, "arrival": {"process": "Constant", "burstiness": 0.5}}},
        "spec.load.arrival",
        "load.arrival.burstiness needs load.arrival.process Gamma",
    ),
    InvalidSpecCase(
        "a duration above the maximum",
        {"spec.load.durationSeconds": 604_800},
        "spec.load.durationSeconds",
        "less than or equal to 86400",
    ),
    InvalidSpecCase(
        "an extra body that is a list",
        {"spec.workloads[0].extraBody": ["top_k"]},
        "spec.workloads[0].extraBody",
        "type object",
        "should be an object",
    ),
    InvalidSpecCase(
        "an extra body with too many fields",
        {"spec.workloads[0].extraBody": {f"field-{number}": number for number in range(33)}},
        "spec.workloads[0].extraBody",
        "at most 32 items",
        "at most 32 items",
    ),
    *(
        InvalidSpecCase(
            f"answers with {len(answers)} demands",
            {"spec.workloads[0].answers": answers},
            "spec.workloads[0].answers",
            remedy,
            "set exactly one of answers.jsonSchema, answers.tools and answers.expected",
        )
        for answers, remedy in (
            ({}, "should have at least 1 properties"),
            ({"jsonSchema": {"type": "object"}, "expected": {"match": "Number"}}, "must have at most 1 item"),
        )
    ),
    InvalidSpecCase("no repeats", {"spec.load.repeats": 0}, "spec.load.repeats", "greater than or equal to 1"),
    InvalidSpecCase(
        "a temperature above the maximum",
        {"spec.workloads[0].sampling": {"temperature": 2.5}},
        "spec.workloads[0].sampling.temperature",
        "less than or equal to 2",
    ),
    InvalidSpecCase(
        "a topP of zero",
        {"spec.workloads[0].sampling": {"topP": 0}},
        "spec.workloads[0].sampling.topP",
        "greater than 0",
    ),
    InvalidSpecCase(
        "maxTokens above the maximum",
        {"spec.workloads[0].output": {"maxTokens": 1_000_000}},
        "spec.workloads[0].output.maxTokens",
        "less than or equal to 131072",
    ),
    InvalidSpecCase(
        "a name with a space", {"spec.workloads[0].name": "my chat"}, "spec.workloads[0].name", "should match", "match"
    ),
    InvalidSpecCase(
        "a name that is too long", {"spec.drafters[0].name": "n" * 33}, "spec.drafters[0].name", "32", "32"
    ),
    InvalidSpecCase(
        "a model with an unknown uri scheme", {"spec.model.uri": "ftp://x/y"}, "spec.model.uri", "should match", "match"
    ),
    InvalidSpecCase(
        "a bucket with capitals",
        {"spec.results.s3.bucket": "Results"},
        "spec.results.s3.bucket",
        "should match",
        "match",
    ),
    InvalidSpecCase(
        "a prefix that ends in a slash",
        {"spec.results.s3.prefix": "a/b/"},
        "spec.results.s3.prefix",
        "should match",
        "match",
    ),
    *(
        InvalidSpecCase(
            f"{name} as a Secret",
            {"spec.results.s3.credentialsSecretRef": {"name": name}},
            "credentialsSecretRef.name",
            "should match",
        )
        for name in ("a..b", "a.-b", ".a", "A")
    ),
    InvalidSpecCase(
        "a bucket with an empty part", {"spec.results.s3.bucket": "a..b"}, "spec.results.s3.bucket", "should match"
    ),
    InvalidSpecCase(
        "a prefix with ..",
        {"spec.results.s3.prefix": "a/../b"},
        "spec.results.s3",
        "has a . or .. component",
    ),
    InvalidSpecCase(
        "a prefix with a leading .", {"spec.results.s3.prefix": "./b"}, "spec.results.s3", "has a . or .. component"
    ),
    *(
        InvalidSpecCase(
            f"{endpoint!r} as an endpoint", {"spec.results.s3.endpoint": endpoint}, "s3.endpoint", "should match"
        )
        for endpoint in ("http://a b c", "http://s3:9000 ", "http:///a", "s3:9000")
    ),
    *(
        InvalidSpecCase(f"{uid!r} as a UID", {"spec.results.adopt": uid}, "spec.results.adopt", "should match")
        for uid in ("../other", "a/b", "-a", "", "LATEST")
    ),
    InvalidSpecCase("a small latest", {"spec.results.adopt": "latest"}, "spec.results", "write Latest"),
    InvalidSpecCase(
        "a region with a space", {"spec.results.s3.region": "us east"}, "spec.results.s3.region", "should match"
    ),
    InvalidSpecCase("an invalid image", {"spec.engine.image": "not an image!"}, "spec.engine.image", "should match"),
    InvalidSpecCase(
        "an invalid claim name",
        {"spec.model.pvc": {"claimName": "A B", "path": "x"}},
        "spec.model.pvc.claimName",
        "should match",
    ),
    InvalidSpecCase(
        "a path outside the volume",
        {"spec.model.pvc": {"claimName": "a", "path": "x/../../etc"}},
        "spec.model.pvc",
        "leaves the volume",
    ),
    InvalidSpecCase(
        "an adapter's path with ..",
        {"spec.model.adapter": {"name": "sql", "model": "/models/../etc"}},
        "spec.model.adapter",
        "write the path without it",
    ),
    InvalidSpecCase(
        "an adapter with the model's name",
        {"spec.model.name": "sql", "spec.model.adapter": {"name": "sql", "model": "acme/sql-lora"}},
        "spec.model",
        "give it another name",
    ),
    *(
        InvalidSpecCase(
            f"an adapter at {model}",
            {"spec.model.adapter": {"name": "sql", "model": model}},
            "spec.model.adapter.model",
            "should match",
        )
        for model in ("s3://models/sql", "~/sql", "../sql", "./sql", "a/b/c", "/models/a=b", "/models/a b")
    ),
    *(
        InvalidSpecCase(
            f"a {kind} node selector with a space", {"spec.placement": edits}, "nodeSelector", "should match"
        )
        for kind, edits in (
            ("node", {"nodeSelector": {"pool": "b c"}}),
            ("client", {"client": {"nodeSelector": {"pool": "b c"}}}),
        )
    ),
    *(
        InvalidSpecCase(
            f"a queue named {name[:9]}", {"spec.placement": {"queueName": name}}, "spec.placement.queueName", expected
        )
        for name, expected in (("", "at least 1"), ("Bench", "should match"), ("q" * 64, "63"))
    ),
    InvalidSpecCase(
        "a queue's priority without a queue",
        {"spec.placement": {"queuePriorityClass": "nightly"}},
        "spec.placement",
        "set queueName",
    ),
    InvalidSpecCase(
        "a queue for engines that must stay on a node",
        {"spec.placement": {"queueName": "gpus", "pinNode": "Require"}},
        "spec.placement",
        "cannot be combined with queueName",
    ),
    InvalidSpecCase(
        "a negative preemption budget",
        {"spec.placement": {"preemptionBudget": -1}},
        "spec.placement.preemptionBudget",
        "than or equal to 0",
    ),
    *(
        InvalidSpecCase(f"{name} as a GPU", {"spec.placement": {"gpuResourceName": name}}, "spec.placement", expected)
        for name, expected in (
            ("./-", "should match"),
            ("gpu", "should match"),
            ("a/b/c", "should match"),
            ("kubernetes.io/gpu", "is not an extended resource"),
            ("requests.nvidia.com/gpu", "is not an extended resource"),
        )
    ),
    *(
        InvalidSpecCase(
            f"a toleration {why}", {"spec.placement": {"tolerations": [row]}}, "spec.placement.tolerations[0]", expected
        )
        for why, row, expected in (
            ("without a key and operator", {}, "operator Equal needs a key"),
            ("of a value without a key", {"operator": "Equal", "value": "x"}, "operator Equal needs a key"),
            ("with Exists and a value", {"key": "a", "operator": "Exists", "value": "x"}, "takes no value"),
            ("of a key with a space", {"key": "a b", "operator": "Exists"}, "should match"),
            ("of a value with a space", {"key": "a", "value": "b c"}, "should match"),
            (
                "with tolerationSeconds and no effect",
                {"key": "a", "tolerationSeconds": 5},
                "only valid with effect NoExecute",
            ),
            (
                "with tolerationSeconds and NoSchedule",
                {"key": "a", "effect": "NoSchedule", "tolerationSeconds": 5},
                "only valid with effect NoExecute",
            ),
        )
    ),
    *(
        InvalidSpecCase(f"GPUs {why}", {"spec.placement": placement}, "spec.placement", expected)
        for why, placement, expected in (
            ("of a claim without a name", {"claimedGpus": 2}, "claimedGpus needs resourceClaimTemplateName"),
            (
                "requested twice",
                {"gpus": 2, "claimedGpus": 2, "resourceClaimTemplateName": "two"},
                "set either gpus",
            ),
            ("without a count", {"resourceClaimTemplateName": "some"}, "set claimedGpus to the number"),
        )
    ),
    InvalidSpecCase(
        "a model split over more GPUs than a claim gives",
        {
            "spec.engine.tensorParallelSize": 4,
            "spec.placement": {"claimedGpus": 2, "resourceClaimTemplateName": "two"},
        },
        "spec",
        "request as many GPUs",
    ),
    InvalidSpecCase(
        "an engine on zero nodes", {"spec.placement": {"nodes": 0}}, "spec.placement.nodes", "or equal to 1"
    ),
    InvalidSpecCase(
        "a cache outside the volume",
        {"spec.placement": {"modelCache": {"claimName": "a", "subPath": "x/../.."}}},
        "spec.placement.modelCache",
        "leaves the volume",
    ),
    InvalidSpecCase(
        "an absolute cache path",
        {"spec.placement": {"modelCache": {"claimName": "a", "subPath": "/x"}}},
        "spec.placement.modelCache.subPath",
        "should match",
    ),
    InvalidSpecCase(
        "a model folder outside the volume",
        {"spec.model.pvc": {"claimName": "a", "path": "x", "subPath": ".."}},
        "spec.model.pvc",
        "pvc.subPath leaves the volume",
    ),
    InvalidSpecCase(
        "an invalid Secret key",
        {"spec.model.tokenSecretRef": {"name": "hub", "key": "a b"}},
        "spec.model.tokenSecretRef.key",
        "should match",
    ),
    InvalidSpecCase(
        "a token without a Secret name",
        {"spec.model.tokenSecretRef": {"key": "a"}},
        "spec.model.tokenSecretRef.name",
        "Required",
        "field required",
    ),
    InvalidSpecCase(
        "an unknown pinNode",
        {"spec.placement": {"pinNode": "Always"}},
        "spec.placement.pinNode",
        '"Prefer", "Require"',
        "'Require'",
    ),
    InvalidSpecCase(
        "an unknown affinity field",
        {"spec.placement": {"affinity": {"nodeAfinity": {}}}},
        "spec.placement.affinity.nodeAfinity",
        "unknown field",
        "did you mean nodeAffinity",
    ),
    InvalidSpecCase(
        "a deadline below the minimum",
        {"spec.activeDeadlineSeconds": 5},
        "spec.activeDeadlineSeconds",
        "than or equal to 60",
    ),
    InvalidSpecCase(
        "a volume with two sources",
        _pod_template({"volumes": [{"name": "a", "configMap": {"name": "a"}, "secret": {"secretName": "a"}}]}),
        "spec.placement.template.spec.volumes[0]",
        "set exactly one of configMap, secret",
    ),
    InvalidSpecCase(
        "a writable claim in the pod template",
        _pod_template({"volumes": [{"name": "a", "persistentVolumeClaim": {"claimName": "a", "readOnly": False}}]}),
        "spec.placement.template.spec.volumes[0].persistentVolumeClaim",
        "use placement.modelCache",
    ),
    InvalidSpecCase(
        "a variable without a source",
        _pod_template({"containers": [{"name": "engine", "env": [{"name": "A", "valueFrom": {}}]}]}),
        "spec.placement.template.spec.containers[0].env[0].valueFrom",
        "set exactly one of valueFrom.secretKeyRef",
    ),
    InvalidSpecCase(
        "a mount outside its folder",
        _pod_template(
            {"containers": [{"name": "engine", "volumeMounts": [{"name": "a", "mountPath": "/mnt/../proc"}]}]}
        ),
        "spec.placement.template.spec.containers[0].volumeMounts[0]",
        "mountPath contains ..",
    ),
    InvalidSpecCase(
        "nine Secrets in the pod template",
        _pod_template({"volumes": [{"name": f"v{at}", "secret": {"secretName": "a"}} for at in range(9)]}),
        "spec.placement.template.spec",
        "names a Secret more than 8 times",
    ),
    InvalidSpecCase(
        "an invalid memory quantity",
        {"spec.placement.client": {"resources": {"limits": {"memory": "lots"}}}},
        "memory",
        "should match",
        "match",
    ),
    InvalidSpecCase(
        "a duplicate variable",
        {"spec.engine.env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]},
        "spec.engine.env",
        "Duplicate value",
        "used twice",
    ),
    InvalidSpecCase(
        "two model locations", {"spec.model.path": "/m", "spec.model.uri": "s3://b/m"}, "spec.model", "at most one of"
    ),
    InvalidSpecCase(
        "the baseline as a drafter",
        {"spec.drafters[0]": {"name": "base", "method": "none"}},
        "spec.drafters[0]",
        "the baseline, which is added automatically",
    ),
    InvalidSpecCase("the baseline's name", {"spec.drafters[0].name": "none"}, "spec.drafters[0]", "choose another"),
    InvalidSpecCase(
        "a draft model without a model",
        {"spec.drafters[0].method": "draft_model"},
        "spec.drafters[0]",
        "set model to its name or path",
    ),
    InvalidSpecCase(
        "eagle without a model",
        {"spec.drafters[0].method": "eagle3"},
        "spec.drafters[0]",
        "set model to its name or path",
    ),
    InvalidSpecCase("ngram with a model", {"spec.drafters[0].model": "acme/draft"}, "spec.drafters[0]", "remove model"),
    InvalidSpecCase(
        "lookup without ngram",
        {"spec.drafters[0]": {**DRAFTER, "promptLookupMax": 4}},
        "spec.drafters[0]",
        "only valid with method ngram",
    ),
    InvalidSpecCase(
        "promptLookupMin above promptLookupMax",
        {"spec.drafters[0].promptLookupMin": 5, "spec.drafters[0].promptLookupMax": 4},
        "spec.drafters[0]",
        "promptLookupMin is larger than promptLookupMax",
    ),
    InvalidSpecCase(
        "two drafters of one name",
        {"spec.drafters[1]": {**DRAFTER, "name": "ngram"}},
        "spec.drafters",
        "Duplicate value",
        "used twice",
    ),
    InvalidSpecCase(
        "two workloads of one name", {"spec.workloads[1]": WORKLOAD}, "spec.workloads", "Duplicate value", "used twice"
    ),
    InvalidSpecCase(
        "nothing to measure",
        {"spec.baseline": "Skip", "spec.drafters": []},
        "spec",
        "nothing to measure, since baseline is Skip and drafters is empty",
    ),
    InvalidSpecCase(
        "a model split over more GPUs than requested",
        {"spec.engine.tensorParallelSize": 4, "spec.placement.gpus": 2},
        "spec",
        "request as many GPUs as the model is split over",
    ),
    InvalidSpecCase(
        "a model split over more GPUs than two nodes have",
        {"spec.engine": {"kind": "vllm", "tensorParallelSize": 17}, "spec.placement": {"gpus": 8, "nodes": 2}},
        "spec",
        "times nodes",
    ),
    InvalidSpecCase(
        "a token map for a head that has its own",
        {"spec.drafters[0]": {"name": "a", "method": "eagle3", "model": "acme/head", "tokenMap": "acme/map"}},
        "spec.drafters[0]",
        "tokenMap is only valid with methods eagle and mtp",
    ),
    InvalidSpecCase(
        "one draft length and several",
        {"spec.drafters[0]": {**DRAFTER, "numSpeculativeTokens": 4, "tryTokens": [1, 2]}},
        "spec.drafters[0]",
        "remove numSpeculativeTokens and draftLengths",
    ),
    InvalidSpecCase(
        "several draft lengths and a schedule of them",
        {"spec.drafters[0]": {**DRAFTER, "draftLengths": [{"batchSize": 4, "tokens": 2}], "tryTokens": [1, 2]}},
        "spec.drafters[0]",
        "remove numSpeculativeTokens and draftLengths",
    ),
    InvalidSpecCase(
        "a name without room for draft lengths",
        {"spec.drafters[0]": {**DRAFTER, "name": "n" * 29, "tryTokens": [1]}},
        "spec.drafters[0]",
        "shorten it to 28 characters",
    ),
    *(
        InvalidSpecCase(
            f"a search {without}", {"spec.search": {}, **edits}, "spec", "search needs drafters, baseline: Measure"
        )
        for without, edits in (
            ("of two repeats", {"spec.load.repeats": 2}),
            ("without a baseline", {"spec.baseline": "Skip"}),
            ("without drafters", {"spec.drafters": []}),
            ("in one launch for each arm", {"spec.load.order": "Sequential"}),
        )
    ),
    InvalidSpecCase(
        "a difference without size",
        {"spec.search": {"worthPercent": 0}},
        "spec.search.worthPercent",
        "should be greater than 0",
        "greater than 0",
    ),
    InvalidSpecCase(
        "an API key for an engine that specbench starts",
        {"spec.engine.apiKeySecretRef": {"name": "key"}},
        "spec.engine",
        "engines that specbench starts need no key",
    ),
    InvalidSpecCase("a name too long for its children", {"metadata.name": "n" * 41}, "metadata.name", "40 characters"),
    InvalidSpecCase(
        "a name that starts with a digit", {"metadata.name": "1st"}, "metadata.name", "start with a letter", "match"
    ),
    InvalidSpecCase("a name with a dot", {"metadata.name": "a.b"}, "metadata.name", "start with a letter", "match"),
    _pair("eagle", "use draft_model or ngram", model="acme/draft"),
    _pair("pard", "use draft_model or ngram", model="acme/draft"),
    _pair("lookahead", "use ngram"),
    _pair("medusa", "use draft_model or ngram", model="acme/draft"),
    _pair("suffix", "use ngram"),
    InvalidSpecCase(
        "a gate without a baseline",
        {"spec.gate": {"baselineRef": {}}},
        "spec.gate.baselineRef",
        "set exactly one of baselineRef.run, baselineRef.campaign and baselineRef.uri",
    ),
    InvalidSpecCase(
        "a gate with two baselines",
        {"spec.gate": {"baselineRef": {"run": "main", "uri": "s3://bench/x"}}},
        "spec.gate.baselineRef",
        "set exactly one of baselineRef.run, baselineRef.campaign and baselineRef.uri",
    ),
    InvalidSpecCase(
        "a percentile of a metric without percentiles",
        {"spec.gate": {"baselineRef": {"run": "main"}, "tolerances": [{"metric": "speedup", "percentile": "p95"}]}},
        "spec.gate.tolerances[0]",
        "tolerances[].percentile is only valid with metric tpot, ttft or e2e",
    ),
    InvalidSpecCase(
        "a gate with zero tolerance",
        {"spec.gate": {"baselineRef": {"run": "main"}, "tolerances": [{"metric": "tpot", "maxRegressionPercent": 0}]}},
        "spec.gate.tolerances[0].maxRegressionPercent",
        "should be greater than 0",
        "greater than 0",
    ),
    InvalidSpecCase(
        "targets without a target",
        {"spec.slo": {"percentile": 99}},
        "spec.slo",
        "set at least one of slo.ttftMs, slo.tpotMs and slo.e2eMs",
    ),
    InvalidSpecCase(
        "a target of zero",
        {"spec.slo": {"tpotMs": 0}},
        "spec.slo.tpotMs",
        "should be greater than 0",
        "greater than 0",
    ),
    InvalidSpecCase(
        "a percentile that is not reported",
        {"spec.slo": {"tpotMs": 35, "percentile": 90}},
        "spec.slo.percentile",
        'supported values: "50", "95", "99"',
        "50, 95 or 99",
    ),
)


VALID_SPECS: tuple[tuple[str, Mapping[str, Any]], ...] = (
    ("the smallest run", {}),
    ("the baseline alone", {"spec.drafters": []}),
    ("targets", {"spec.slo": {"ttftMs": 500, "tpotMs": 35.5, "e2eMs": 60_000, "percentile": 99}}),
    ("a drafter alone", {"spec.baseline": "Skip"}),
    ("two arms, two workloads", {"spec.drafters[1]": DRAFTER, "spec.workloads[1]": {**WORKLOAD, "name": "code"}}),
    (
        "a file on a volume",
        {"spec.workloads[0].dataset": {"source": "csv", "pvc": {"claimName": "data", "path": "a/x.csv"}}},
    ),
    ("a template by the engine", {"spec.workloads[0].chatTemplate": {"appliedBy": "Engine", "kwargs": {}}}),
    (
        "a template by the client",
        {
            "spec.workloads[0].chatTemplate": {
                "appliedBy": "Client",
                "tokenizer": "s3://bucket/tokenizer/",
                "name": "rag",
                "kwargs": {"enable_thinking": False, "stop": None},
                "date": "2026-02-03",
            }
        },
    ),
    ("a mix", {"spec.workloads[0].dataset": {**MIX, "count": 40}}),
    (
        "an entropy tier with a pinned revision and a seed",
        {
            "spec.workloads[0].dataset": {
                "source": "speed-bench",
                "config": "throughput_8k",
                "revision": "0123abc",
                "entropy": ["Low", "High"],
                "count": 80,
                "seed": 7,
                "allowMissing": True,
            }
        },
    ),
    ("nulls are fields not given", {"spec.model.revision": None, "spec.engine.args": None, "spec.placement": None}),
    ("a null label is ignored", {"spec.placement": {"nodeSelector": {"pool": None}}}),
    ("bounds are allowed", {"spec.load": {"concurrency": [1, 4096], "repeats": 32, "warmupRequests": 0}}),
    ("an open loop, Poisson by default", {"spec.load": {"rate": [0.5, 2], "slots": 64, "durationSeconds": 60}}),
    (
        "the maximum number of conversations",
        {"spec.load": {"rate": [1000], "slots": 64, "durationSeconds": 1000}},
    ),
    ("one conversation", {"spec.load": {"rate": [0.5], "slots": 1, "durationSeconds": 2}}),
    ("a day of requests", {"spec.load": {"rate": [1], "slots": 1, "requests": 86_400}}),
    (
        "bursts",
        {"spec.load": {"rate": [2], "slots": 8, "arrival": {"process": "Gamma", "burstiness": 0.25, "seed": 7}}},
    ),
    (
        "a gamma process that is Poisson",
        {"spec.load": {"rate": [2], "slots": 8, "arrival": {"process": "Gamma", "burstiness": 1}}},
    ),
    (
        "a trace at its own speed",
        {"spec.load": {"slots": 8, "arrival": {"process": "Trace", "uri": "s3://b/trace.csv"}}},
    ),
    (
        "a trace stretched to several rates",
        {"spec.load": {"rate": [1, 2], "slots": 8, "arrival": {"process": "Trace", "uri": "trace.jsonl"}}},
    ),
    ("more slots than streams", {"spec.load": {"concurrency": [1, 8], "slots": 8, "durationSeconds": 60}}),
    ("answers that are not streamed", {"spec.workloads[0].output": {"stream": False}}),
    (
        "an extra body of any shape",
        {
            "spec.workloads[0].extraBody": {
                "top_k": 20,
                "stop": ["###", "Question:"],
                "chat_template_kwargs": {"enable_thinking": False, "deep": [{"a": 1.5}, "b", None]},
            }
        },
    ),
    (
        "answers that match a schema of any shape",
        {"spec.workloads[0].answers": {"jsonSchema": {"enum": [None, 1.5, {"a": None}], "default": None}}},
    ),
    (
        "answers that call tools",
        {"spec.workloads[0].answers": {"tools": [{"type": "function", "function": {"name": "now"}}]}},
    ),
    ("answers with a number", {"spec.workloads[0].answers": {"expected": {"field": "gold", "match": "Number"}}}),
    ("a null in the extra body", {"spec.workloads[0].extraBody": {"top_k": None}}),
    (
        "fields that are removed and renamed",
        {
            "spec.workloads[0].output": {"maxTokens": 64},
            "spec.workloads[0].extraBody": {
                **dict.fromkeys(("seed", "temperature", "stream_options", "max_tokens")),
                "max_completion_tokens": 64,
            },
        },
    ),
    ("whole numbers are numbers", {"spec.workloads[0].sampling": {"temperature": 2, "topP": 1}}),
    ("the longest name", {"metadata.name": "n" * 40}),
    ("a model from a claim", {"spec.model.pvc": {"claimName": "models", "path": "tiny"}}),
    ("llama.cpp with a draft model", {"spec.engine.kind": "llama-cpp", "spec.drafters[0]": DRAFTER}),
    (
        "everything about placement",
        {
            "spec.placement": {
                "gpus": 4,
                "gpuResourceName": "amd.com/gpu",
                "nodeSelector": {"gpu.product": "X"},
                "tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}],
                "priorityClassName": "high",
                "queueName": "team-a.gpus",
                "queuePriorityClass": "nightly",
                "preemptionBudget": 100,
                "imagePullSecrets": [{"name": "registry"}],
                "client": {
                    "serviceAccountName": "bench",
                    "resources": {"requests": {"cpu": "500m"}, "limits": {"cpu": 2}},
                    "nodeSelector": {"pool": "cpu"},
                    "tolerations": [{"key": "cpu-pool", "operator": "Exists"}],
                    "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{}]}},
                },
            },
            "spec.engine.tensorParallelSize": 4,
        },
    ),
    (
        "GPUs of the device plugin and a claim of something else",
        {"spec.placement": {"gpus": 4, "resourceClaimTemplateName": "imex-channel"}},
    ),
    *(
        (f"{name} as a GPU", {"spec.placement": {"gpus": 1, "gpuResourceName": name}})
        for name in (
            "nvidia.com/mig-1g.10gb",
            "nvidia.com/mig-3g.40gb.me",
            "nvidia.com/gpu.shared",
            "amd.com/gpu",
            "habana.ai/gaudi",
            "google.com/tpu",
            "gpu.intel.com/i915",
            "aws.amazon.com/neuron",
        )
    ),
    (
        "a model over the GPUs of two nodes",
        {
            "spec.engine": {"kind": "vllm", "tensorParallelSize": 16},
            "spec.placement": {"gpus": 8, "nodes": 2},
        },
    ),
    (
        "everything about nodes, claims, caches and tokens",
        {
            "spec.model.tokenSecretRef": {"name": "hub"},
            "spec.model.pvc": {"claimName": "models", "subPath": "a/b..c", "path": "tiny"},
            "spec.engine.tensorParallelSize": 2,
            "spec.placement": {
                "claimedGpus": 2,
                "resourceClaimTemplateName": "two-gpus",
                "affinity": {
                    "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{}]}},
                    "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1}]},
                },
                "pinNode": "Require",
                "runtimeClassName": "nvidia",
                "engineServiceAccountName": "bench-engine",
                "sharedMemory": "16Gi",
                "modelCache": {"claimName": "hub-cache", "subPath": "team"},
            },
        },
    ),
    (
        "tolerations of every kind",
        {
            "spec.placement": {
                "tolerations": [
                    {"operator": "Exists"},
                    {"key": "example.com/gpu", "value": ""},
                    {"key": "gpu", "value": "yes", "effect": "PreferNoSchedule"},
                    {"key": "gpu", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 0},
                ]
            }
        },
    ),
    (
        "names with dots, labels with domains",
        {
            "spec.placement": {
                "gpuResourceName": "gpu.example.com/Big_1.x",
                "nodeSelector": {"node.kubernetes.io/instance-type": "p5.48xlarge", "spare": ""},
                "priorityClassName": "team-a.high",
            },
            "spec.engine.image": "Registry.example.com:5000/a_b/c:v1.0-x@sha256:0123",
            "spec.results.s3": {"bucket": "a.b-c", "prefix": "...a/.b", "endpoint": "https://s3.example.com/x"},
        },
    ),
    (
        "running servers in full",
        {
            "spec.engine": {
                "kind": "external",
                "dialect": "vllm",
                "version": "0.33.0",
                "apiKeySecretRef": {"name": "key", "key": "token"},
                "endpoints": [
                    {"name": "none", "url": "http://plain:8000"},
                    {"name": "b-1", "url": "https://gateway.example/b", "dialect": "sglang", "model": "b"},
                ],
            },
            "spec.drafters": [],
            "spec.placement": {"client": {"nodeSelector": {"pool": "cpu"}}, "imagePullSecrets": [{"name": "registry"}]},
        },
    ),
    (
        "S3 in full",
        {
            "spec.results.s3": {
                "bucket": "results",
                "prefix": "team/a",
                "endpoint": "http://s3:9000",
                "region": "eu-1",
                "credentialsSecretRef": {"name": "bench-s3"},
            },
            "spec.results.adopt": "7d0f6bd8-4c4b-4d53-9d53-000000000001",
        },
    ),
    (
        "a gate in full",
        {
            "spec.gate": {
                "baselineRef": {"campaign": "nightly"},
                "tolerances": [
                    {"metric": "speedup", "maxRegressionPercent": 3},
                    {"metric": "ttft", "percentile": "p95", "arms": ["none", "ngram"], "workloads": ["chat"]},
                ],
                "confidence": 0.9,
                "minRepeats": 5,
                "onMissing": "Pass",
                "onInconclusive": "Pass",
                "requireTrustworthy": False,
            }
        },
    ),
)
