"""The research runtime: one golden command line per drafter, and the message of each rejection."""

from __future__ import annotations

from typing import Any

import pytest

from specbench_api.launch.launcher import LaunchSpec
from specbench_testing.planned_launches import launches_of, refusal_of

KIND = {"spec.engine.kind": "transformers"}
COMMON = ("--model", "acme/tiny", "--revision", "v1", "--served-model-name", "acme/tiny")
PROGRAM = ("python", "-m", "specbench_client.research")
GOLDEN: dict[str, tuple[dict[str, Any], str]] = {
    "ngram": (
        {"method": "ngram", "numSpeculativeTokens": 5, "promptLookupMax": 4},
        "--drafter ngram --num-speculative-tokens 5 --prompt-lookup-max 4",
    ),
    "draft-model": (
        {"method": "draft_model", "model": "acme/small", "revision": "v2", "args": ["--threads=1"]},
        (
            "--drafter draft_model --num-speculative-tokens 3 --drafter-model acme/small --drafter-revision v2"
            " --threads=1"
        ),
    ),
    "medusa": (
        {"method": "medusa", "model": "./medusa_lm_head.safetensors"},
        "--drafter medusa --num-speculative-tokens 3 --drafter-model ./medusa_lm_head.safetensors",
    ),
}


def launches(**edits: Any) -> dict[str, LaunchSpec]:
    return launches_of({**KIND, "spec.model": {"name": "acme/tiny", "revision": "v1"}, **edits})


@pytest.mark.parametrize("name", GOLDEN)
def test_each_drafter_has_its_command_line(name: str) -> None:
    drafter, line = GOLDEN[name]
    found = launches(**{"spec.drafters": [{"name": "d", **drafter}]})
    assert found["none"].args == COMMON
    assert found["d"].args == (*COMMON, *line.split())


def test_local_launches_and_pods_run_the_research_module() -> None:
    for image in ("", "acme/torch:1"):
        engine = {"kind": "transformers", **({"image": image} if image else {})}
        launch = launches(**{"spec.engine": engine, "spec.drafters": []})["none"]
        assert (launch.image, launch.image_program, launch.local_programs) == (image, PROGRAM, (PROGRAM,))


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ({"name": "a/b"}, ("--model", "a/b")),
        ({"name": "a/b", "path": "/m/t", "revision": "v9"}, ("--model", "/m/t")),
        ({"name": "a/b", "pvc": {"claimName": "c", "path": "/t"}}, ("--model", "/models/t")),
        ({"name": "a/b", "tokenizer": "a/c"}, ("--model", "a/b", "--tokenizer", "a/c")),
    ],
)
def test_the_model_source_selects_the_model_argument(model: dict[str, Any], expected: tuple[str, ...]) -> None:
    launch = launches(**{"spec.model": model, "spec.drafters": []})["none"]
    assert launch.args == (*expected, "--served-model-name", "a/b")


@pytest.mark.parametrize(
    ("edits", "expected"),
    [
        ({"spec.engine.tensorParallelSize": 2}, "spec.engine.tensorParallelSize: the research runtime cannot split"),
        ({"spec.engine.args": ["-k", "9"]}, "spec.engine.args[0]: '-k 9' contradicts a flag that specbench manages"),
        (
            {"spec.drafters[0].promptLookupMin": 1},
            "spec.drafters[0].promptLookupMin: is not supported by the research runtime",
        ),
        (
            {"spec.drafters[0].speculativeConfig": {"a": 1}},
            "spec.drafters[0].speculativeConfig: is not supported by the research runtime",
        ),
    ],
)
def test_unsupported_settings_are_rejected(edits: dict[str, Any], expected: str) -> None:
    assert refusal_of({**KIND, **edits}).startswith(expected)
