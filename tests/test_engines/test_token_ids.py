"""Real engines return the same tokens and greedy answers for messages and for the client's token ids."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from specbench_api.launch.launcher import LaunchRequest
from specbench_api.launch.registry import LAUNCHERS
from specbench_api.launch.transformers import PROGRAM
from specbench_api.spec.chat_template import ChatTemplate
from specbench_api.spec.engine import Engine, EngineKind, EnvVar
from specbench_api.spec.model import Target
from specbench_api.spec.workload import Output
from specbench_client.documents.record import Record
from specbench_client.local.engine_process import EngineProcess
from specbench_client.transport.http_transport import KernelTransport
from specbench_client.workload.chat_template.loading import load_template
from specbench_client.workload.chat_template.template import AppliedTemplate
from specbench_testing.conversation_turns import context, row
from specbench_testing.load_loops import LoopDriver

pytestmark = [pytest.mark.real, pytest.mark.timeout(900)]

START_S = 600
ROWS = [
    row("colour", "Name a colour.", "Repeat that colour five times."),
    row("odd", 'Say: <b>"é"</b> & 😀\n\ntwice.  '),
]
MARK = "<|im_start|>"
"""A special token of the model that does not end an answer; its id is 1."""
FORCED = {"logit_bias": {"1": 100}}
"""Makes the engine answer with this token only."""


def engine_of(kind: EngineKind, python: str, path: str) -> Engine:
    offline = [EnvVar(name="HF_HUB_OFFLINE", value="1")]
    if kind is EngineKind.LLAMA_CPP:
        return Engine(kind=kind, args=["--ctx-size=2048", "--threads=1"])
    if kind is EngineKind.TRANSFORMERS:
        env = [EnvVar(name="PYTHONPATH", value=path), *offline]
        return Engine(kind=kind, command=[python, *PROGRAM[1:]], env=env, args=["--threads=1", "--dtype=float32"])
    env = [*offline, EnvVar(name="VLLM_NO_USAGE_STATS", value="1"), EnvVar(name="VLLM_CPU_KVCACHE_SPACE", value="1")]
    args = ["--dtype=float32", "--max-model-len=1024", "--max-num-seqs=4", "--enforce-eager"]
    return Engine(
        kind=kind, version="0.32.0", command=[str(Path(python).with_name("vllm")), "serve"], env=env, args=args
    )


def _marking(kind: EngineKind, template: AppliedTemplate) -> list[AppliedTemplate]:
    """The template, also with MARK as a reasoning marker; the research runtime cannot force tokens."""
    return [] if kind is EngineKind.TRANSFORMERS else [template, replace(template, special_markers=(MARK,))]


async def records_of(url: str, kind: EngineKind, template: AppliedTemplate | None, **more: object) -> list[Record]:
    output = Output(max_tokens=24)
    async with KernelTransport() as transport:
        request_config = {"model": "smol", "output": output, "keep_text": True, "template": template, **more}
        driver = LoopDriver(context(transport, url, kind, **request_config), template=template)
        await driver.closed(ROWS, 1)
    assert [record.error for record in driver.records if record.error] == []
    return sorted(driver.records, key=lambda record: (record.prompt_id, record.turn))


@pytest.mark.parametrize("kind", [EngineKind.TRANSFORMERS, EngineKind.LLAMA_CPP, EngineKind.VLLM])
async def test_token_ids_and_messages_give_the_same_answers(
    kind: EngineKind,
    *,
    demo_models: dict[str, str],
    demo_folders: dict[str, str],
    engine_python: str,
    specbench_path: str,
    tmp_path: Path,
) -> None:
    declared = ChatTemplate(applied_by="Client", tokenizer=demo_folders["target"])
    template = load_template(declared, Target(name="smol"), tmp_path)
    path = demo_models["target"] if kind is EngineKind.LLAMA_CPP else demo_folders["target"]
    order = LaunchRequest(engine_of(kind, engine_python, specbench_path), Target(name="smol", path=path), None, slots=1)
    launch = LAUNCHERS[kind].launch(order)
    async with EngineProcess(launch, tmp_path, tmp_path / "engine.log") as engine:
        await engine.wait_ready(START_S)
        by_messages, by_ids = [await records_of(engine.url, kind, one) for one in (None, template)]
        shown = [await records_of(engine.url, kind, one, extra_body=FORCED) for one in _marking(kind, template)]

    assert [(one.prompt_id, one.turn) for one in by_ids] == [("colour", 0), ("colour", 1), ("odd", 0)]
    assert [one.input_tokens for one in by_ids] == [one.input_tokens for one in by_messages]
    assert [one.output_text for one in by_ids] == [one.output_text for one in by_messages]
    assert len({one.output_text for one in by_ids}) > 1
    first = [template.with_token_ids(one.turns[0])[-1].token_ids for one in ROWS]
    assert [by_ids[0].input_tokens, by_ids[2].input_tokens] == [len(ids or ()) for ids in first]
    if shown:
        without, with_them = (records[0].output_text or "" for records in shown)
        assert MARK not in without
        assert with_them.startswith(MARK * 3)
