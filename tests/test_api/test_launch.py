"""How each engine is started, and which arguments contradict managed ones."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st

from generators.engines_page import RELATED_METHODS
from specbench_api.launch.arguments import EngineFlags, contradictions, flag_of
from specbench_api.launch.launcher import DerivedMethod, LaunchSpec, Verification
from specbench_api.launch.registry import LAUNCHERS, SINGLE_NODE_ENGINES
from specbench_api.launch.supported_methods import DEFAULT_RELEASES, SUPPORT_MATRIX, support_of
from specbench_api.plan.expansion import expand, lossy_arms
from specbench_api.spec.drafter import NEEDS_MODEL, Method
from specbench_api.spec.engine import EngineKind
from specbench_testing.planned_launches import launch_of, refusal_of, refusals_of
from specbench_testing.resources import endpoint_edits, run_of

LLAMA = {
    "spec.engine.kind": "llama-cpp",
    "spec.model": {"name": "acme/tiny", "path": "/m/tiny.gguf"},
    "spec.drafters[0].numSpeculativeTokens": 6,
}


LAUNCHED = [kind for kind in EngineKind if kind is not EngineKind.EXTERNAL]
XPRESS = {"speculativeConfig": {"xpress_topc": 256}}
ADAPTIVE = {"speculativeConfig": {"enable_adaptive_verification": True}}
BLOCK = {"speculativeConfig": {"rejection_sample_method": "block"}}
OTHER_VOCABULARY = {"speculativeConfig": {"use_heterogeneous_vocab": True}}
AUTOMATON = {"speculativeConfig": {"sa_config": {"threshold": 4}}}
POOL, TABLE = "--speculative-domino-candidate-pool-size=0", "--speculative-dspark-sps-table-path"
RELATED: tuple[tuple[str, EngineKind, dict[str, Any], str], ...] = (
    ("XPress", EngineKind.VLLM, {"method": "dflash", **XPRESS}, '"xpress_topc":256'),
    ("DFlash2", EngineKind.VLLM, {"method": "dflash"}, '"method":"dflash"'),
    ("DFlash2", EngineKind.SGLANG, {"method": "dflash"}, "--speculative-algorithm DFLASH"),
    ("LiLiCorr", EngineKind.VLLM, {"method": "dflash"}, '"method":"dflash"'),
    ("LiLiCorr", EngineKind.SGLANG, {"method": "dflash"}, "--speculative-algorithm DFLASH"),
    ("Domino", EngineKind.SGLANG, {"method": "dflash", "args": [POOL]}, POOL),
    ("Adaptive verification", EngineKind.VLLM, {"method": "dspark", **ADAPTIVE}, '"enable_adaptive_verification":true'),
    ("Adaptive verification", EngineKind.SGLANG, {"method": "dspark", "args": [TABLE, "/t.json"]}, f"{TABLE} /t.json"),
    ("Block verification", EngineKind.VLLM, {"method": "eagle3", **BLOCK}, '"rejection_sample_method":"block"'),
    (
        "Block verification",
        EngineKind.SGLANG,
        {"method": "eagle3", "args": ["--speculative-use-block-verification"]},
        "--speculative-use-block-verification",
    ),
    (
        "P-EAGLE",
        EngineKind.VLLM,
        {"method": "eagle3", "speculativeConfig": {"parallel_drafting": True}},
        '"parallel_drafting":true',
    ),
    (
        "A drafter with another vocabulary (TLI)",
        EngineKind.VLLM,
        {"method": "draft_model", **OTHER_VOCABULARY},
        '"use_heterogeneous_vocab":true',
    ),
    *(
        (
            "Suffix automaton beside a drafter",
            EngineKind.TENSORRT_LLM,
            {"method": method, **AUTOMATON, **({"model": None} if method == "mtp" else {})},
            "sa_config:\n    threshold: 4",
        )
        for method in ("eagle3", "mtp", "pard")
    ),
)
"""Settings of the table of related methods on the engines page: row, engine, drafter, what it renders."""


@pytest.mark.parametrize("kind", LAUNCHED)
def test_every_launcher_names_the_flag_of_its_context_length(kind: EngineKind) -> None:
    """Without the flag, prompts that are too long would be found only during the measurement."""
    rules = LAUNCHERS[kind].context
    assert rules.flags
    assert all(flag.startswith("-") for flag in (*rules.flags, *rules.sharing_flags))
    assert rules.divided_among_slots or not rules.sharing_flags


def test_every_pair_of_engine_and_method_has_a_support_cell_with_evidence_or_an_alternative() -> None:
    assert set(SUPPORT_MATRIX) == set(product(EngineKind, Method))
    for pair, cell in SUPPORT_MATRIX.items():
        assert cell.how, pair
        assert cell.evidence.source, pair
        assert cell.supported or cell.instead, pair


ALGORITHMS = {EngineKind.VLLM: "ngram_gpu", EngineKind.SGLANG: "UNO", EngineKind.LLAMA_CPP: "ngram-mod"}
"""An algorithm for method custom, per engine that has named algorithms."""


@pytest.mark.parametrize(
    ("kind", "method"), [pair for pair in SUPPORT_MATRIX if pair[1] is not Method.NONE and pair[0] in LAUNCHED]
)
def test_a_pair_is_launched_exactly_if_the_matrix_supports_it(kind: EngineKind, method: Method) -> None:
    own = {"model": "acme/draft"} if method in (*NEEDS_MODEL, Method.DSPARK) else {}
    named = {"algorithm": ALGORITHMS.get(kind, "its-own")} if method is Method.CUSTOM else {}
    edits = {
        "spec.engine.kind": str(kind),
        "spec.drafters[0]": {"name": "d", "method": str(method), "numSpeculativeTokens": 8, **own, **named},
    }
    found = support_of(kind, method, DEFAULT_RELEASES.get(kind))
    if found.supported:
        assert launch_of(edits, "d").args
    else:
        assert refusals_of(edits) == [
            f"spec.drafters[0].method: {kind} does not support {method}: {found.how} (use {found.instead})"
        ]


@pytest.mark.parametrize(("row", "kind", "drafter", "expected"), RELATED)
def test_settings_of_related_methods_are_rendered(
    row: str, kind: EngineKind, drafter: dict[str, Any], expected: str
) -> None:
    version = {"version": "1.3.0"} if kind is EngineKind.TENSORRT_LLM else {}
    variables = [{"name": "SGLANG_RAGGED_VERIFY_MODE", "value": "compact"}] if TABLE in expected else []
    edits = {
        "spec.engine": {"kind": str(kind), **version, "env": variables},
        "spec.drafters[0]": {"name": "d", "numSpeculativeTokens": 8, "model": "acme/draft", **drafter},
    }
    launch = launch_of(edits, "d")
    assert expected in " ".join((*launch.args, *launch.configs.values()))
    assert {each["name"]: launch.env.get(each["name"]) for each in variables} == {
        each["name"]: each["value"] for each in variables
    }
    (found,) = [each for each in RELATED_METHODS if each.name == row]
    settings = [*drafter.get("speculativeConfig", {}), *drafter.get("args", ())[:1]]
    assert [setting for setting in settings if setting not in found.how] == []


def test_every_related_method_whose_settings_are_named_is_tested() -> None:
    names = [row.name for row in RELATED_METHODS]
    assert set(names[names.index("XPress") :]) == {row for row, *_ in RELATED}


@pytest.mark.parametrize("kind", LAUNCHED)
def test_arms_differ_only_in_their_drafter(kind: EngineKind) -> None:
    engine = {"kind": str(kind), "args": ["--x", "1"], "env": [{"name": "A", "value": "1"}], "image": "i:1"}
    edits = {"spec.engine": engine, "spec.drafters[0].numSpeculativeTokens": 8}
    baseline, drafting = (launch_of(edits, arm) for arm in ("none", "ngram"))
    assert baseline.args[-2:] == drafting.args[-2:] == ("--x", "1")
    alike = [(one.image, one.port, one.command, one.env) for one in (baseline, drafting)]
    assert alike[0] == alike[1]


def test_fields_about_starting_an_engine_are_refused_for_running_servers() -> None:
    launched = {"image": "i:1", "args": ["--x"], "tensorParallelSize": 2, "env": [{"name": "A"}], "version": "1"}
    edits = {**endpoint_edits("none", "b", **launched), "spec.placement": {"nodeSelector": {"a": "b"}, "client": {}}}
    reason = "has no effect: the endpoints are already running, and specbench starts no engine (remove it)"
    assert refusals_of(edits) == [
        f"spec.{field}: {reason}"
        for field in (
            "engine.image",
            "engine.tensorParallelSize",
            "engine.args",
            "engine.env",
            "placement.nodeSelector",
        )
    ]
    assert "is only valid with engine.kind tensorrt-llm" in str(refusals_of(endpoint_edits("b", config={"a": 1})))


def test_the_simulator_command_has_the_drafter_its_length_and_the_arms_arguments() -> None:
    edits = {
        "spec.engine": {"kind": "simulator", "args": ["--base-ms=5"]},
        "spec.drafters[0]": {
            "name": "ngram",
            "method": "ngram",
            "numSpeculativeTokens": 4,
            "args": ["--acceptance=0.7"],
        },
    }
    assert launch_of(edits, "none").args == ("simulate", "--dialect", "vllm", "--drafter", "none", "--base-ms=5")
    assert launch_of(edits, "ngram").args == (
        "simulate", "--dialect", "vllm", "--drafter", "ngram", "--num-speculative-tokens", "4", "--acceptance=0.7",
        "--base-ms=5",
    )  # fmt: skip
    assert launch_of(edits, "none").served_model == "simulated"


@pytest.mark.parametrize(
    ("shared", "own", "expected"),
    [
        (
            ["--time-scal=0.3"],
            ["--seed", "-1", "--zzz"],
            [
                "spec.engine.args[0]: the simulator has no option --time-scal (did you mean --time-scale?)",
                "spec.drafters[0].args[2]: the simulator has no option --zzz (see specbench simulate --help)",
            ],
        ),
        (
            ["--fault=miscount=2", "--fault", "oom", "--fault=zzz"],
            ["--fault", "loop=0.5"],
            [
                "spec.engine.args[3]: the simulator has no fault 'zzz' (see specbench simulate --help)",
                "spec.drafters[0].args[1]: the simulator has no fault 'loop' (did you mean loops?)",
            ],
        ),
    ],
)
def test_an_unknown_option_or_fault_of_the_simulator_is_refused(
    shared: list[str], own: list[str], expected: list[str]
) -> None:
    drafter = {"name": "a", "method": "ngram", "numSpeculativeTokens": 5, "args": own}
    engine = {"kind": "simulator", "args": shared}
    assert refusals_of({"spec.engine": engine, "spec.drafters": [drafter]}) == expected
    other = {**engine, "image": "example.com/simulator:2"}
    assert launch_of({"spec.engine": other, "spec.drafters": [drafter]}, "a").args, "another build may have it"


def test_engine_dialect_sets_the_dialect_of_the_simulator() -> None:
    edits = {"spec.engine": {"kind": "simulator", "dialect": "sglang"}}
    assert {launch_of(edits, arm).args[:3] for arm in ("none", "ngram")} == {("simulate", "--dialect", "sglang")}
    assert refusal_of({"spec.engine": {"kind": "simulator", "args": ["--dialect=sglang"]}}) == (
        "spec.engine.args[0]: '--dialect=sglang' contradicts '--dialect vllm', which specbench sets"
        " (set spec.engine.dialect)"
    )


def test_engine_command_replaces_the_program_for_every_engine() -> None:
    for kind in LAUNCHED:
        edits = {"spec.drafters": [], "spec.engine": {"kind": str(kind), "command": ["/bin/my-engine", "serve"]}}
        assert launch_of(edits, "none").command == ("/bin/my-engine", "serve")


MANAGED = "a flag that specbench manages"
SLOTS = "it is spec.load.slots, or else the highest of spec.load.concurrency"


@pytest.mark.parametrize(
    ("args", "managed", "remedy"),
    [
        (["--parallel=9"], "'--parallel 1', which specbench sets", SLOTS),
        (["-np", "9"], "'--parallel 1', which specbench sets", SLOTS),
        (["-m", "/x"], "'--model /m/tiny.gguf', which specbench sets", "set spec.model.path"),
        (["--no-slots"], "'--slots', which specbench sets", "remove it: specbench sets it for every arm"),
        (["-hf", "a/b"], MANAGED, "set spec.model.name"),
        (["--spec-type", "draft-simple"], MANAGED, "set drafters[].method, or algorithm with method custom"),
        (["-md", "/x"], MANAGED, "set drafters[].model"),
        (["--spec-draft-model=/x"], MANAGED, "set drafters[].model"),
        (["--spec-draft-n-max", "9"], MANAGED, "set drafters[].numSpeculativeTokens"),
        *(
            ([f"{flag}=9"], MANAGED, "set drafters[].numSpeculativeTokens")
            for flag in ("--draft", "--draft-n", "--draft-max", "--spec_draft_n_max")
        ),
        (["--spec-ngram-simple-size-n", "9"], MANAGED, "set drafters[].promptLookupMax"),
        (["--port", "1"], MANAGED, "remove it: specbench sets it for every arm"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_rejects_an_argument_that_contradicts_a_managed_flag_with_both_values(
    args: list[str], managed: str, remedy: str
) -> None:
    found = refusals_of({**LLAMA, "spec.engine": {"kind": "llama-cpp", "args": ["--ctx-size=512", *args]}})
    assert found == [f"spec.engine.args[1]: {' '.join(args)!r} contradicts {managed} ({remedy})"]


@pytest.mark.parametrize(
    ("kind", "given", "managed"),
    [
        ("simulator", "-k 9", "--num-speculative-tokens 6"),
        ("llama-cpp", "--spec-type ngram-mod", "--spec-type ngram-simple"),
        ("vllm", "--spec-tokens 9", '--speculative-config {"method":"ngram","num_speculative_tokens":6}'),
    ],
)
def test_rejects_a_drafter_argument_that_contradicts_the_drafter_with_both_values(
    kind: str, given: str, managed: str
) -> None:
    edits = {**LLAMA, "spec.engine": {"kind": kind}, "spec.drafters[0].args": given.split()}
    expected = f"spec.drafters[0].args[0]: {given!r} contradicts {managed!r}, which specbench sets"
    assert refusal_of(edits).startswith(expected)


def test_llama_cpp_arguments_have_flags_and_values_separated() -> None:
    edits = {**LLAMA, "spec.engine": {"kind": "llama-cpp", "args": ["--ctx-size=512", "--temp", "-1", "a=b"]}}
    assert launch_of(edits, "none").args[-5:] == ("--ctx-size", "512", "--temp", "-1", "a=b")


@pytest.mark.parametrize("kind", LAUNCHED)
def test_managed_flags_are_rejected_in_drafter_arguments_too(kind: EngineKind) -> None:
    edits = {"spec.engine.kind": str(kind), "spec.drafters[0].args": ["--host=0.0.0.0"]}
    assert refusals_of(edits)[0].startswith("spec.drafters[0].args[0]: '--host=0.0.0.0' contradicts")


@pytest.mark.parametrize("kind", LAUNCHED)
def test_a_flag_of_both_engine_and_arm_is_rejected_with_both_values(
    kind: EngineKind,
) -> None:
    engine = {"kind": str(kind), "args": ["--base-ms=1", "--seed=1"]}
    drafter = {"name": "ngram", "method": "ngram", "numSpeculativeTokens": 8, "args": ["--seed", "2"]}
    assert refusal_of({**LLAMA, "spec.engine": engine, "spec.drafters": [drafter]}) == (
        "spec.drafters[0].args[0]: '--seed 2' and '--seed=1' of spec.engine.args[1] set the same flag"
        " (keep it in engine.args, for all arms, or move it to the args of each drafter)"
    )


@pytest.mark.parametrize("kind", LAUNCHED)
@pytest.mark.parametrize("where", ["engine", "drafters[0]"])
def test_a_repeated_flag_is_rejected_with_both_values(kind: EngineKind, where: str) -> None:
    args = ["--seed=1", "--base-ms=1", "--seed", "2"]
    edits = {"spec.drafters[0].numSpeculativeTokens": 8, f"spec.{where}.args": args}
    assert refusal_of({**LLAMA, "spec.engine": {"kind": str(kind)}, **edits}) == (
        f"spec.{where}.args[2]: '--seed 2' and '--seed=1' of spec.{where}.args[0] set the same flag"
        " (remove one of them: engines use the last)"
    )


@pytest.mark.parametrize(
    ("kind", "args"),
    [
        ("simulator", ["--acceptance=0.5", "--acceptance=0.7"]),
        ("llama-cpp", ["--ctx-size=1", "-c", "2"]),
        ("llama-cpp", ["--ctx_size", "1", "--ctx-size=2"]),
        ("llama-cpp", ["--draft-min=1", "--spec-draft-n-min=2"]),
        ("vllm", ["--max-num-seqs=1", "--max_num_seqs", "2"]),
        ("vllm", ["--enable-expert-parallel", "--no-enable-expert-parallel"]),
        ("vllm", ["--compilation-config.mode=1", "-cc.mode=2"]),
        ("vllm", ["--compilation-config.mode=1", "-cc", '{"mode":2}']),
        ("vllm", ['-cc={"mode":2}', "--compilation_config.mode=1"]),
        ("sglang", ["--dp-size=2", "--data-parallel-size=4"]),
        ("tensorrt-llm", ["--pp_size=1", "--pipeline_parallel_size=2"]),
    ],
    ids=str,
)
def test_rejects_a_flag_repeated_in_another_spelling(kind: str, args: list[str]) -> None:
    edits = {**LLAMA, "spec.engine": {"kind": kind, "args": args}, "spec.drafters": []}
    assert "set the same flag (remove one of them" in refusal_of(edits)


@pytest.mark.parametrize(
    ("kind", "args", "own"),
    [
        ("simulator", ["--fault=http-500", "--fault=miscount"], []),
        ("simulator", ["--fault=stall"], ["--fault=oom"]),
        ("llama-cpp", ["--lora", "a", "--lora", "b", "--logit-bias=1-2", "-l", "3+4"], []),
        ("llama-cpp", ["--lora=a"], ["--lora=b"]),
        ("vllm", ["--middleware=a", "--middleware=b", "-cc.mode=1", "-cc.cudagraph_mode=NONE"], []),
        ("vllm", ["-cc.mode=1"], ["--compilation-config.cudagraph_mode=NONE"]),
        ("tensorrt-llm", ["--custom_module_dirs", "a", "--custom_module_dirs", "b"], []),
    ],
    ids=str,
)
def test_a_repeatable_flag_may_occur_several_times(kind: str, args: list[str], own: list[str]) -> None:
    drafter = {"name": "ngram", "method": "ngram", "numSpeculativeTokens": 8, "args": own}
    assert launch_of({**LLAMA, "spec.engine": {"kind": kind, "args": args}, "spec.drafters": [drafter]}, "ngram").args


@pytest.mark.parametrize(
    ("argument", "flag"),
    [
        ("--ctx-size=8192", "--ctx-size"),
        ("--metrics", "--metrics"),
        ("-np", "-np"),
        ("-1", ""),
        ("-0.5", ""),
        ("value", ""),
        ("a=b", ""),
        ("", ""),
    ],
)
def test_flag_of_distinguishes_flags_from_values(argument: str, flag: str) -> None:
    assert flag_of(argument) == flag


@drawn(st.lists(st.sampled_from(["--mine", "--mine=1", "-m", "--other", "-1", "mine"])))
def test_contradictions_reports_exactly_the_managed_flags_with_their_index(args: list[str]) -> None:
    found = contradictions(EngineFlags(["--mine"], {"-m": "--mine"}, {}), args, "p")
    paths = [f"p[{index}]" for index, argument in enumerate(args) if argument in ("--mine", "--mine=1", "-m")]
    assert [problem.path for problem in found] == paths


@pytest.mark.parametrize("kind", [kind for kind in LAUNCHED if kind is not EngineKind.TENSORRT_LLM])
def test_engine_config_is_rejected_by_other_engines(kind: EngineKind) -> None:
    problem = refusal_of({"spec.engine": {"kind": str(kind), "config": {"a": 1}}, "spec.drafters": []})
    assert problem.startswith("spec.engine.config: is only valid with engine.kind tensorrt-llm")


ADAPTER = {"name": "sql", "model": "/m/sql", "rank": 20}


@pytest.mark.parametrize(
    ("kind", "rendered", "served"),
    [
        ("vllm", "--enable-lora --lora-modules sql=/m/sql --max-lora-rank 32", "sql"),
        ("sglang", "--enable-lora --lora-paths sql=/m/sql --max-lora-rank 20", "acme/tiny:sql"),
        ("llama-cpp", "--lora /m/sql", "acme/tiny"),
        ("simulator", "--served-model-name sql", "sql"),
    ],
)
@pytest.mark.parametrize("arm", ["none", "ngram"])
def test_every_arm_answers_with_the_adapter(kind: str, rendered: str, served: str, arm: str) -> None:
    launch = launch_of({**LLAMA, "spec.engine.kind": kind, "spec.model.adapter": ADAPTER}, arm)
    assert rendered in " ".join(launch.args)
    assert launch.served_model == served
    assert rendered not in " ".join(launch.drafting)


@pytest.mark.parametrize(("kind", "flag"), [("vllm", "--lora-modules=a=/a"), ("sglang", "--lora-paths=a=/a")])
def test_the_adapter_is_given_in_one_place(kind: str, flag: str) -> None:
    """Without model.adapter, the flags are the user's own."""
    edits = {"spec.engine.kind": kind, "spec.engine.args": [flag]}
    assert flag in launch_of(edits, "none").args
    found = refusal_of({**edits, "spec.model.adapter": ADAPTER})
    assert found.startswith("spec.engine.args[0]")
    assert "set spec.model.adapter" in found


HEAD = {"name": "it", "method": "eagle3", "model": "/m/head", "numSpeculativeTokens": 4}
LENGTHS = {"draftLengths": [{"batchSize": 4, "tokens": 4}]}


@pytest.mark.parametrize(
    ("edits", "expected"),
    [
        ({"spec.engine.kind": "tensorrt-llm"}, "spec.model.adapter: specbench passes no adapter to tensorrt-llm"),
        ({"spec.engine.kind": "transformers"}, "spec.model.adapter: specbench passes no adapter to transformers"),
        (
            {"spec.engine.kind": "llama-cpp", "spec.model.adapter": {**ADAPTER, "model": "acme/sql"}},
            "spec.model.adapter.model: llama-server reads adapters only from files",
        ),
        (
            {"spec.engine.kind": "sglang", "spec.drafters[0]": {**HEAD, "method": "draft_model"}},
            "spec.drafters[0].method: SGLang does not start with an adapter and ",
        ),
        (
            {"spec.engine.kind": "sglang", "spec.drafters[0]": {**HEAD, **LENGTHS}},
            "spec.drafters[0].draftLengths: SGLang does not start with an adapter and ",
        ),
    ],
)
def test_what_does_not_work_with_an_adapter_is_refused(edits: dict[str, Any], expected: str) -> None:
    given = {"spec.drafters[0].numSpeculativeTokens": 6, "spec.model.adapter": ADAPTER, **edits}
    assert refusal_of(given).startswith(expected)
    assert launch_of({**given, "spec.model.adapter": None}).args, "without an adapter it works"


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("llama-cpp", "llama-server"),
        ("sglang", "SGLang"),
        ("tensorrt-llm", "trtllm-serve"),
        ("transformers", "transformers"),
    ],
)
def test_a_target_with_a_uri_is_refused_where_the_engine_cannot_load_it(kind: str, name: str) -> None:
    edits = {"spec.engine.kind": kind, "spec.model": {"name": "m", "uri": "s3://b/m"}, "spec.drafters": []}
    assert refusal_of(edits).startswith(f"spec.model.uri: {name} cannot load a model from a URI")


# How each engine draws and accepts drafts above temperature 0, by its command line.

DRAFTER = {"model": "acme/head"}
MTP = {"method": "mtp", "numSpeculativeTokens": 3}
GGUF = {"method": "draft_model", "model": "/models/draft.gguf"}
FLY = {"speculativeConfig": {"rejection_sample_method": "fly"}}
RELAXED = {"speculativeConfig": {"use_relaxed_acceptance_for_thinking": True, "relaxed_topk": 10}}
SINGLE = "--speculative-accept-threshold-single"


def edits(kind: str, drafter: dict[str, Any], **engine: Any) -> dict[str, Any]:
    model = {"name": "m", "path": "/models/m.gguf"} if kind == "llama-cpp" else {"name": "acme/tiny"}
    arm = {"name": "arm", **drafter}
    return {"spec.model": model, "spec.engine": {"kind": kind, **engine}, "spec.drafters": [arm]}


def verification(kind: str, drafter: dict[str, Any], **engine: Any) -> Verification:
    plan = expand(run_of(edits(kind, drafter, **engine)))
    chosen = plan.arm("arm").drafter
    assert chosen is not None
    return LAUNCHERS[plan.engine.kind].verification(plan.engine, chosen)


def names(found: Verification) -> tuple[str | None, str | None]:
    return found.drafts.name, found.acceptance.name


@pytest.mark.parametrize(
    ("kind", "drafter", "drafts", "acceptance", "source"),
    [
        ("vllm", {"method": "eagle3", **DRAFTER}, "greedy", "rejection sampling", "default of vllm 0.33.0"),
        ("vllm", {"method": "ngram"}, "greedy", "rejection sampling", "default of vllm 0.33.0"),
        ("sglang", {"method": "eagle3", **DRAFTER}, "greedy", "token match", "default of sglang 0.5.23"),
        ("sglang", {"method": "ngram"}, "greedy", "token match", "default of sglang 0.5.23"),
        ("sglang", {"method": "dspark", **DRAFTER}, "probabilistic", "rejection sampling", "default of sglang 0.5.23"),
        ("llama-cpp", GGUF, "greedy", "token match", "default of llama.cpp b11368 and later"),
        (
            "transformers", {"method": "draft_model", **DRAFTER},
            "probabilistic", "rejection sampling", "default of transformers 5.19.0",
        ),
        ("transformers", {"method": "ngram"}, "greedy", "token match", "default of transformers 5.19.0"),
        ("sglang", MTP, "greedy", "token match", "default of sglang 0.5.23, except on ROCm, where it draws chains"),
        (
            "vllm", {"method": "ngram", "speculativeConfig": {"draft_sample_method": "probabilistic"}},
            "greedy", "rejection sampling", "default of vllm 0.33.0",
        ),
    ],
)  # fmt: skip
def test_defaults_name_the_release_that_they_are_from(
    kind: str, drafter: dict[str, Any], drafts: str, acceptance: str, source: str
) -> None:
    assert verification(kind, drafter) == Verification(DerivedMethod(drafts, source), DerivedMethod(acceptance, source))


@pytest.mark.parametrize(
    ("kind", "drafter", "engine", "drafts", "acceptance", "sources"),
    [
        (
            "vllm", {**MTP, "speculativeConfig": {"draft-sample-method": "probabilistic"}}, {},
            "probabilistic", "rejection sampling", ("speculativeConfig.draft_sample_method", "default of vllm 0.33.0"),
        ),
        (
            "vllm", {**MTP, "speculativeConfig": {"rejection_sample_method": "block"}}, {},
            "greedy", "block verification", ("default of vllm 0.33.0", "speculativeConfig.rejection_sample_method"),
        ),
        (
            "sglang", {**MTP, "args": ["--speculative-use-rejection-sampling"]}, {},
            "probabilistic", "rejection sampling", ("--speculative-use-rejection-sampling",) * 2,
        ),
        (
            "sglang", {"method": "eagle3", **DRAFTER}, {"args": ["--speculative-use-block"]},
            "probabilistic", "block verification", ("--speculative-use-block-verification",) * 2,
        ),
        (
            "sglang", {"method": "dspark", **DRAFTER},
            {"env": [{"name": "SGLANG_DSPARK_USE_GREEDY_DRAFT", "value": "1"}]},
            "greedy", "rejection sampling", ("SGLANG_DSPARK_USE_GREEDY_DRAFT", "default of sglang 0.5.23"),
        ),
        (
            "llama-cpp", {**GGUF, "args": ["--spec-draft-sampling=probabilistic"]}, {},
            "probabilistic", "rejection sampling", ("--spec-draft-sampling",) * 2,
        ),
        (
            "llama-cpp", {**GGUF, "args": ["--spec_draft_sampling", "greedy"]}, {},
            "greedy", "token match", ("--spec-draft-sampling",) * 2,
        ),
    ],
)  # fmt: skip
def test_options_are_the_source_of_what_they_set(  # noqa: PLR0917 -- the columns of the table
    kind: str, drafter: dict[str, Any], engine: dict[str, Any], drafts: str, acceptance: str, sources: tuple[str, str]
) -> None:
    found = verification(kind, drafter, **engine)
    assert names(found) == (drafts, acceptance)
    assert (found.drafts.source, found.acceptance.source) == sources
    assert not found.lossy


@pytest.mark.parametrize(
    ("kind", "drafter", "acceptance", "option"),
    [
        ("vllm", {**MTP, **FLY}, "FLy (lossy)", "speculativeConfig.rejection_sample_method: fly"),
        ("vllm", {"method": "ngram", **FLY}, "FLy (lossy)", "speculativeConfig.rejection_sample_method: fly"),
        ("sglang", {**MTP, "args": [SINGLE, "0.5"]}, "acceptance thresholds (lossy)", f"{SINGLE} 0.5"),
        ("sglang", {"method": "ngram", "args": [f"{SINGLE}=.9"]}, "acceptance thresholds (lossy)", f"{SINGLE} .9"),
        ("sglang", {"method": "dflash", **DRAFTER, "args": [SINGLE, "0.5"]}, None, f"{SINGLE} 0.5"),
        (
            "tensorrt-llm", {**MTP, **RELAXED}, "relaxed acceptance (lossy)",
            "speculativeConfig.use_relaxed_acceptance_for_thinking: true",
        ),
        (
            "tensorrt-llm", {"method": "eagle3", **DRAFTER, "speculativeConfig": {"posterior_threshold": 0.1}},
            "typical acceptance (lossy)", "speculativeConfig.posterior_threshold: 0.1",
        ),
    ],
)  # fmt: skip
def test_lossy_options_are_allowed_and_named(
    kind: str, drafter: dict[str, Any], acceptance: str | None, option: str
) -> None:
    assert verification(kind, drafter).acceptance.name == acceptance
    assert lossy_arms(expand(run_of(edits(kind, drafter)))) == {"arm": (option,)}


def test_threshold_for_all_arms_is_lossy_only_where_drafts_are_verified() -> None:
    plan = expand(run_of(edits("sglang", MTP, args=["--speculative-accept-threshold-acc=0.7"])))
    assert [arm.name for arm in plan.arms] == ["none", "arm"]
    assert lossy_arms(plan) == {"arm": ("--speculative-accept-threshold-acc 0.7",)}


@pytest.mark.parametrize(
    ("kind", "drafter"),
    [
        ("vllm", {**MTP, "speculativeConfig": {"rejection_sample_method": "standard"}}),
        ("sglang", {**MTP, "args": [SINGLE, "1.0"]}),
        ("sglang", {"method": "dspark", **DRAFTER, "args": [SINGLE, "0.5"]}),
        ("tensorrt-llm", {**MTP, "speculativeConfig": {"use_relaxed_acceptance_for_thinking": False}}),
        ("llama-cpp", {**GGUF, "args": ["--spec-draft-p-min", "0.9"]}),
    ],
)
def test_options_that_keep_the_distribution_are_not_lossy(kind: str, drafter: dict[str, Any]) -> None:
    assert lossy_arms(expand(run_of(edits(kind, drafter)))) == {}


@pytest.mark.parametrize(("value", "partial"), [(True, True), (False, False), (None, False)])
def test_adaptive_verification_leaves_drafts_out_that_vllm_counts(value: bool | None, partial: bool) -> None:
    config = {} if value is None else {"speculativeConfig": {"enable-adaptive-verification": value}}
    assert verification("vllm", {"method": "dspark", **DRAFTER, **config}).partial is partial


@pytest.mark.parametrize(
    ("kind", "drafter", "expected", "why"),
    [
        (
            "vllm", {"method": "custom", "algorithm": "custom_class", "model": "my.Proposer"},
            (None, None), "a custom class",
        ),
        ("sglang", {"method": "custom", "algorithm": "UNO"}, (None, None), "algorithm UNO may draw"),
        ("sglang", {"method": "dflash", **DRAFTER}, (None, None), "a candidate selector or LiLiCorr"),
        ("simulator", {"method": "ngram"}, (None, None), "the simulator accepts drafts at random"),
        ("tensorrt-llm", MTP, ("greedy", "token match"), "not observed"),
        (
            "tensorrt-llm", {**MTP, "speculativeConfig": {"use_rejection_sampling": True}},
            (None, "rejection sampling"), "",
        ),
        (
            "llama-cpp", {"method": "ngram", "args": ["--spec-draft-sampling", "probabilistic"]},
            ("greedy", "token match"), "",
        ),
    ],
)  # fmt: skip
def test_methods_that_do_not_follow_from_the_command_are_unknown_with_a_reason(
    kind: str, drafter: dict[str, Any], expected: tuple[str | None, str | None], why: str
) -> None:
    found = verification(kind, drafter)
    assert names(found) == expected
    assert why in found.drafts.source


# Engines on several nodes: one command line for all of them, and unsupported engines.

MANY = {"spec.placement": {"gpus": 8, "nodes": 2}}
MULTI_NODE_ENGINES = [kind for kind in EngineKind if kind not in SINGLE_NODE_ENGINES]


def launch(kind: str, nodes: int) -> LaunchSpec:
    engine = {"kind": kind, "tensorParallelSize": 8 * nodes}
    return launch_of({"spec.engine": engine, "spec.placement": {"gpus": 8, "nodes": nodes}}, "ngram")


@pytest.mark.parametrize(
    ("kind", "flags", "further"),
    [
        (
            "vllm",
            {"--nnodes": "2", "--node-rank": "$(LWS_WORKER_INDEX)", "--master-addr": "$(LWS_LEADER_ADDRESS)"},
            ("--headless",),
        ),
        (
            "sglang",
            {
                "--nnodes": "2",
                "--node-rank": "$(LWS_WORKER_INDEX)",
                "--dist-init-addr": "$(LWS_LEADER_ADDRESS):20000",
            },
            (),
        ),
    ],
)
def test_each_node_has_the_same_arguments(kind: str, flags: dict[str, str], further: tuple[str, ...]) -> None:
    found = launch(kind, 2)
    assert found.worker_args == (*found.args, *further)
    assert {name: found.args[found.args.index(name) + 1] for name in flags} == flags
    assert "--headless" not in found.args


def test_simulator_workers_follow_the_leader() -> None:
    assert launch("simulator", 2).worker_args == ("simulate", "--follow", "http://$(LWS_LEADER_ADDRESS):8000")


@pytest.mark.parametrize("kind", MULTI_NODE_ENGINES)
def test_a_single_node_launch_has_no_multi_node_arguments(kind: EngineKind) -> None:
    found = launch(str(kind), 1)
    assert found.worker_args is None
    assert not [argument for argument in found.args if "LWS" in argument or "nnodes" in argument]


@pytest.mark.parametrize("kind", [kind for kind in SINGLE_NODE_ENGINES if kind is not EngineKind.EXTERNAL])
def test_a_single_node_engine_is_rejected_with_the_reason(kind: EngineKind) -> None:
    problem = refusal_of({**MANY, "spec.engine": {"kind": str(kind)}})
    assert problem.startswith("spec.placement.nodes: ")
    assert "is only supported on one node: " in problem


@pytest.mark.parametrize(
    ("kind", "args"),
    [
        ("vllm", ["--nnodes=3"]),
        ("vllm", ["-n", "2"]),
        ("vllm", ["--headless"]),
        ("sglang", ["--node-rank", "1"]),
        ("sglang", ["--nccl-init-addr=x:1"]),
        ("simulator", ["--follow=http://x:1"]),
    ],
)
def test_rejects_multi_node_flags_in_engine_args(kind: str, args: list[str]) -> None:
    assert "spec.engine.args[0]: " in str(refusals_of({**MANY, "spec.engine": {"kind": kind, "args": args}}))


@pytest.mark.parametrize(
    ("kind", "size", "args", "expected"),
    [
        ("vllm", 1, [], "1 processes"),
        ("vllm", 3, [], "3 processes"),
        ("vllm", 1, ["--prefill_context_parallel_size=3"], "3 processes"),
        ("sglang", 1, [], "1 processes"),
        ("sglang", 3, [], "3 processes"),
    ],
)
def test_processes_that_cannot_be_divided_among_the_nodes_are_rejected(
    kind: str, size: int, args: list[str], expected: str
) -> None:
    edits = {**MANY, "spec.engine": {"kind": kind, "tensorParallelSize": size, "args": args}}
    assert refusal_of(edits).startswith(f"spec.placement.nodes: {expected}")


@pytest.mark.parametrize(
    ("kind", "size", "args"),
    [
        ("vllm", 16, []),
        ("vllm", 3, ["-pp", "2"]),
        ("vllm", 1, ["--data-parallel-size=2"]),
        ("sglang", 3, ["--pipeline-parallel-size", "2"]),
    ],
)
def test_processes_that_can_be_divided_may_span_the_gpus_of_all_nodes(kind: str, size: int, args: list[str]) -> None:
    assert launch_of({**MANY, "spec.engine": {"kind": kind, "tensorParallelSize": size, "args": args}}).worker_args


@pytest.mark.parametrize(
    ("engine", "placement", "expected"),
    [
        ({"kind": "vllm"}, {}, 1),
        ({"kind": "vllm", "tensorParallelSize": 4}, {}, 4),
        ({"kind": "vllm", "tensorParallelSize": 2, "args": ["-pp", "2", "--data-parallel-size=3"]}, {}, 12),
        ({"kind": "vllm", "tensorParallelSize": 2, "args": ["--data_parallel_size_local", "2"]}, {}, 2),
        ({"kind": "vllm", "args": ["--pipeline-parallel=2", "--prefill-context=3"]}, {}, 6),
        ({"kind": "vllm", "tensorParallelSize": 16}, {"nodes": 2}, 8),
        ({"kind": "vllm", "tensorParallelSize": 2}, {"gpus": 3}, 3),
        ({"kind": "vllm", "tensorParallelSize": 2}, {"gpus": 0}, 0),
        ({"kind": "vllm", "tensorParallelSize": 2}, {"claimedGpus": 2, "resourceClaimTemplateName": "two"}, 2),
        ({"kind": "sglang", "tensorParallelSize": 2, "args": ["--dp", "2"]}, {}, 4),
        ({"kind": "sglang", "args": ["--pipeline-parallel=2", "--dp-s=3"]}, {}, 6),
        ({"kind": "vllm", "tensorParallelSize": 64, "args": ["-dp", "2"]}, {"nodes": 2}, 64),
        ({"kind": "sglang", "tensorParallelSize": 8, "args": ["--dp-size=8", "--enable-dp-attention"]}, {}, 8),
        ({"kind": "tensorrt-llm", "tensorParallelSize": 2, "args": ["--pp_size", "2"]}, {}, 4),
        ({"kind": "tensorrt-llm", "tensorParallelSize": 2, "config": {"pipeline_parallel_size": 4}}, {}, 8),
        ({"kind": "transformers"}, {}, 0),
        ({"kind": "simulator"}, {}, 0),
    ],
)
def test_each_node_gets_the_gpus_that_the_parallel_sizes_need(
    engine: dict[str, Any], placement: dict[str, Any], expected: int
) -> None:
    run = run_of({"spec.engine": engine, "spec.placement": placement, "spec.drafters": []})
    assert expand(run).placement.devices == expected


def test_the_arm_with_the_largest_parallel_sizes_decides_the_gpus() -> None:
    run = run_of({"spec.engine": {"kind": "vllm"}, "spec.drafters[0].args": ["--pipeline-parallel-size=2"]})
    assert expand(run).placement.gpus == 2


@pytest.mark.parametrize(("baseline", "expected"), [("Measure", 64), ("Skip", 8)])
def test_data_parallel_attention_of_a_drafter_saves_gpus_only_on_its_arm(baseline: str, expected: int) -> None:
    engine = {"kind": "sglang", "tensorParallelSize": 8, "args": ["--dp", "8"]}
    drafting = {"spec.drafters[0].args": ["--enable-dp-attention"], "spec.baseline": baseline}
    assert expand(run_of({"spec.engine": engine, **drafting})).placement.gpus == expected


@pytest.mark.parametrize(
    ("kind", "args", "placement", "remedy"),
    [
        ("vllm", ["-dp", "4", "-pp", "8"], {}, "raise it, or lower"),
        ("vllm", ["-dp", "4", "-pp", "8"], {"gpus": 64}, "raise it, or lower"),
        ("vllm", ["-dp=33"], {"nodes": 2}, "raise it, or lower"),
        ("sglang", ["--dp=32"], {"claimedGpus": 64, "resourceClaimTemplateName": "all"}, "raise it, or lower"),
        ("tensorrt-llm", ["--pp_size=32"], {}, "GPUs per node (lower"),
    ],
)
def test_more_gpus_than_a_node_may_have_are_refused(
    kind: str, args: list[str], placement: dict[str, Any], remedy: str
) -> None:
    engine = {"kind": kind, "tensorParallelSize": 4, "args": args}
    problem = refusal_of({"spec.engine": engine, "spec.placement": placement, "spec.drafters": []})
    assert problem.startswith("spec.placement.nodes: ")
    assert remedy in problem


def test_too_few_claimed_gpus_are_refused() -> None:
    engine = {"kind": "vllm", "tensorParallelSize": 2, "args": ["-pp", "2"]}
    claim = {"claimedGpus": 2, "resourceClaimTemplateName": "two"}
    assert refusal_of({"spec.engine": engine, "spec.placement": claim}).startswith("spec.placement.claimedGpus: 4 ")


@pytest.mark.parametrize(
    ("engine", "gpus", "refused"),
    [
        ({"kind": "vllm", "tensorParallelSize": 2, "args": ["-pp=2"]}, 2, True),
        ({"kind": "vllm", "tensorParallelSize": 2, "args": ["-pp=2"]}, 4, False),
        ({"kind": "sglang", "args": ["--dp-size=4"]}, 3, True),
        ({"kind": "tensorrt-llm", "config": {"context_parallel_size": 2}}, 1, True),
    ],
)
def test_fewer_gpus_than_the_parallel_sizes_need_are_refused(engine: dict[str, Any], gpus: int, refused: bool) -> None:
    edits = {"spec.engine": engine, "spec.placement.gpus": gpus, "spec.drafters": []}
    if refused:
        assert refusal_of(edits).startswith("spec.placement.gpus: ")
    else:
        expand(run_of(edits))
