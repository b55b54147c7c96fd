"""The research runtime's server with a byte-level language model, driven by the real client.

torch is not needed: the generator is a protocol. tests/test_engines tests the real one.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
import threading
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from specbench_api.plan.expansion import lay_out
from specbench_api.plan.plan import Plan
from specbench_api.spec.engine import DialectName, EngineKind
from specbench_api.spec.workload import Output
from specbench_client.dialects.dialect import counter_difference
from specbench_client.dialects.registry import DIALECTS
from specbench_client.documents.record import Record
from specbench_client.drive.group import drive_group
from specbench_client.drive.options import DriveOptions
from specbench_client.research.__main__ import serve
from specbench_client.research.messages import Detokenizer
from specbench_client.research.runtime import GenerationRequest, GenerationStep, TokenIds
from specbench_client.research.server import ResearchServer
from specbench_client.store.folder import FolderStore
from specbench_client.stored_runs.write_results import conclude
from specbench_client.transport.control_client import ControlClient
from specbench_client.transport.http_transport import KernelTransport
from specbench_testing.closing_servers import ClosingTestServer
from specbench_testing.conversation_turns import context, row
from specbench_testing.load_loops import LoopDriver
from specbench_testing.present import present
from specbench_testing.resources import external_engine, run_of
from specbench_testing.simulated_groups import write_prompts

DIALECT = DIALECTS[EngineKind.TRANSFORMERS]
EOS = 256
TEXT = "Grüße 😀 aus dem Wörterbuch. "
ACCEPTED = (3, 0, 1, 2)
"""Accepted drafts per step, repeated from the start."""


@dataclass
class Parrot:
    """A language model whose tokens are bytes: it generates TEXT repeatedly, or once followed by EOS."""

    version: str = "0"
    model_name: str = "parrot"
    max_length: int = 400
    vocabulary: int = 257
    speculative_tokens: int = 3
    eos: frozenset[int] = frozenset({EOS})
    gate: threading.Event | None = None
    broken_after: int | None = None
    jobs: list[GenerationRequest] = field(default_factory=list)
    stopped_early: threading.Event = field(default_factory=threading.Event)

    def facts(self) -> Mapping[str, str | int | None]:
        return {"dtype": "bytes", "weights_bytes": 0, "drafter_weights_bytes": 0, "gpu": None}

    def chat(self, messages: Sequence[Mapping[str, str]]) -> TokenIds:
        return self.encode("".join(one["content"] for one in messages))

    def encode(self, text: str) -> TokenIds:
        return tuple(text.encode())

    def decode(self, tokens: TokenIds) -> str:
        return bytes(one for one in tokens if one != EOS).decode(errors="replace")

    def generate(
        self, job: GenerationRequest, emit: Callable[[GenerationStep], None], stopped: Callable[[], bool]
    ) -> None:
        self.jobs.append(job)
        output = itertools.cycle((*TEXT.encode(), EOS))
        emit(GenerationStep((next(output),)))
        left, last = job.max_tokens - 1, -1
        for number, accepted in enumerate(itertools.cycle(ACCEPTED if self.speculative_tokens else (0,))):
            if self.gate:
                self.gate.wait()
            if stopped():
                self.stopped_early.set()
            if number == self.broken_after:
                raise RuntimeError("the weights caught fire")
            if not left or stopped() or (last == EOS and not job.ignore_eos):
                return
            tokens: tuple[int, ...] = ()
            while len(tokens) < min(accepted + 1, left) and not (tokens[-1:] == (EOS,) and not job.ignore_eos):
                tokens += (next(output),)
            emit(GenerationStep(tokens, self.speculative_tokens, len(tokens) - 1))
            left, last = left - len(tokens), tokens[-1]


@asynccontextmanager
async def serving(parrot: Parrot) -> AsyncIterator[str]:
    async with ClosingTestServer(ResearchServer(parrot).application(), handler_cancellation=True) as server:
        yield str(server.make_url("")).rstrip("/")


async def records_of(url: str, output: Output, *, drafting: bool = True, concurrency: int = 2) -> list[Record]:
    async with KernelTransport() as transport:
        changed = {"model": "parrot", "drafting": drafting, "output": output}
        driver = LoopDriver(context(transport, url, EngineKind.TRANSFORMERS, **changed))
        await driver.closed([row("a", "one", "two"), row("b", "three"), row("c", "four")], concurrency)
    return driver.records


def body(**more: Any) -> dict[str, Any]:
    return {"model": "parrot", "messages": [{"role": "user", "content": "hi"}], "temperature": 0, **more}


async def post(url: str, path: str, **request: Any) -> tuple[int, dict[str, Any]]:
    """Send one request; return the status and the document."""
    async with aiohttp.ClientSession(url) as session, session.post(f"/v1/{path}", **request) as answer:
        return answer.status, await answer.json()


@pytest.mark.parametrize(("max_tokens", "stream"), [(1, True), (2, False), (37, True), (64, True), (64, False)])
async def test_records_match_the_servers_counters(max_tokens: int, stream: bool) -> None:
    output = Output(max_tokens=max_tokens, ignore_eos=True, stream=stream)
    async with serving(Parrot()) as url, ControlClient(url) as control:
        before = DIALECT.counters(await control.text(DIALECT.metrics_path))
        records = await records_of(url, output)
        page = await control.text(DIALECT.metrics_path)
    counted = counter_difference(before, DIALECT.counters(page))
    assert DIALECT.speculating(None, page) is True
    assert {(each.error, each.output_tokens, each.finish_reason) for each in records} == {(None, max_tokens, "length")}
    for record in records:
        assert record.steps == record.draft_steps
        assert max_tokens == 1 + sum(accepted + 1 for accepted in present(record.step_accepted))
    for name in ("output_tokens", "draft_steps", "drafted_tokens", "accepted_tokens"):
        assert getattr(counted, name) == sum(getattr(record, name) for record in records), name
    assert counted.prompt_tokens == sum(record.input_tokens or 0 for record in records)


async def test_text_is_identical_streamed_and_unstreamed_and_ends_at_eos_unless_it_is_ignored() -> None:
    length = len(TEXT.encode()) + 1
    async with serving(Parrot()) as url:
        _, whole = await post(url, "chat/completions", json=body(max_tokens=200))
        streamed = await records_of(url, Output(max_tokens=200))
        unstreamed = await records_of(url, Output(max_tokens=200, stream=False))
        endless = await records_of(url, Output(max_tokens=99, ignore_eos=True))
    assert whole["choices"][0]["message"]["content"] == TEXT
    assert len({each.output_sha256 for each in (*streamed, *unstreamed)}) == 1
    assert {(each.output_tokens, each.finish_reason) for each in streamed} == {(length, "stop")}
    assert {(each.output_tokens, each.finish_reason) for each in endless} == {(99, "length")}


async def test_baseline_exposes_no_draft_metrics() -> None:
    async with serving(Parrot(speculative_tokens=0)) as url, ControlClient(url) as control:
        records = await records_of(url, Output(max_tokens=10), drafting=False)
        page = await control.text("/metrics")
        assert DIALECT.speculating(None, page) is False
    assert "spec_decode" not in page
    assert {(record.steps, record.drafted_tokens) for record in records} == {(9, None)}


@pytest.mark.process
@pytest.mark.parametrize("dialect", ["vllm", "openai"])
async def test_run_against_the_endpoint_is_labelled_as_a_research_runtime(dialect: str, tmp_path: Path) -> None:
    store = FolderStore(tmp_path / "results")
    async with serving(Parrot()) as url:
        plan = _endpoint_plan(url, dialect, write_prompts(tmp_path / "p.jsonl", count=3))
        await drive_group(plan, plan.groups[0], url, store, DriveOptions(attempt="a"))
    summary = await asyncio.to_thread(conclude, plan, store)
    assert "ResearchRuntime" in {finding.check for finding in summary.findings}
    assert summary.headline.startswith("On a research runtime: ")


def _endpoint_plan(url: str, dialect: str, prompts: Path) -> Plan:
    """Return the plan that `specbench measure` would make."""
    run = run_of({
        "spec.engine": external_engine(DialectName(dialect), url).to_dict(),
        "spec.model": {"name": "parrot"},
        "spec.drafters": [],
        "spec.workloads[0].dataset.uri": str(prompts),
        "spec.workloads[0].output": {"maxTokens": 8},
        "spec.load": {"concurrency": [1], "repeats": 1, "warmupRequests": 0},
    })  # fmt: skip
    return lay_out(run)


async def test_token_ids_are_accepted_and_returned() -> None:
    request = {"prompt": [71, 0, 255], "max_tokens": 5, "temperature": 0, "return_token_ids": True}
    parrot = Parrot()
    async with serving(parrot) as url:
        _, document = await post(url, "completions", json=request)
    assert parrot.jobs[0].prompt == (71, 0, 255)
    assert document["choices"][0]["token_ids"] == list(TEXT.encode()[:5])
    assert document["usage"]["prompt_tokens"] == 3


async def test_request_parameters_reach_the_generator() -> None:
    parrot = Parrot()
    async with serving(parrot) as url:
        for more in ({"temperature": 0.7, "top_p": 0.9, "seed": 5, "max_tokens": 4}, {"max_completion_tokens": 3}):
            assert (await post(url, "chat/completions", json=body() | more))[0] == 200
    assert parrot.jobs == [GenerationRequest((104, 105), 4, 0.7, 0.9, 5), GenerationRequest((104, 105), 3)]


@pytest.mark.parametrize(
    ("path", "request_body", "status", "message"),
    [
        ("chat/completions", body(top_k=5), 400, "does not support top_k=5"),
        ("chat/completions", body(stop=["x"]), 400, "does not support stop="),
        ("chat/completions", body(n=2), 400, "does not support n=2"),
        ("chat/completions", body(unheard_of=1), 400, "does not support unheard_of=1"),
        ("chat/completions", body(temperature=-1), 400, "temperature: Input should be greater than or equal to 0"),
        ("chat/completions", body(max_tokens=399), 400, "maximum context length is 400 tokens; the prompt has 2 and"),
        ("chat/completions", body(model="other"), 404, "`other` does not exist; `parrot` is served"),
        ("chat/completions", {"prompt": "hi"}, 400, "give messages"),
        ("completions", body(), 400, "give one prompt"),
        ("completions", {"prompt": [5, 257]}, 400, "Token id 257 is out of the vocabulary"),
        ("completions", {"prompt": ""}, 400, "give one prompt"),
    ],
)
async def test_unsupported_request_is_rejected(
    path: str, request_body: dict[str, Any], status: int, message: str
) -> None:
    async with serving(Parrot()) as url:
        found, document = await post(url, path, json=request_body)
        assert (await post(url, path, data=b"{"))[0] == 400
    assert found == status
    assert message in document["error"]["message"]


def test_missing_extra_is_reported_with_the_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    done = CliRunner().invoke(serve, ["--model", "x"])
    assert done.exit_code == 2
    assert "torch and transformers are not installed: pip install 'WHEEL[transformers]' (in a clone" in done.output
    assert "as an image: docker build --target research" in done.output


@pytest.mark.parametrize("args", [["--drafter=medusa"], ["--drafter=ngram", "--drafter-model=x"]])
def test_drafter_with_a_model_requires_drafter_model(args: list[str]) -> None:
    done = CliRunner().invoke(serve, ["--model", "x", *args])
    assert (done.exit_code, "require --drafter-model" in done.output) == (2, True)


async def gauge(control: ControlClient, name: str) -> float:
    page = await control.text("/metrics")
    (line,) = [line for line in page.splitlines() if line.startswith(f"vllm:{name}{{")]
    return float(line.rsplit(" ", 1)[1])


async def becomes(control: ControlClient, expected: dict[str, float]) -> None:
    """Poll until the gauges have these values; the test's timeout ends the loop otherwise."""
    seen: dict[str, float] = {}
    while seen != expected:
        seen = {name: await gauge(control, name) for name in expected}


async def test_requests_are_served_one_at_a_time_and_disconnected_ones_are_dropped() -> None:
    parrot = Parrot(gate=threading.Event())
    async with serving(parrot) as url, ControlClient(url) as control, aiohttp.ClientSession(url) as session:

        async def send_chat() -> int:
            request = body(max_tokens=300, ignore_eos=True, stream=True)
            async with session.post("/v1/chat/completions", json=request) as answer:
                await answer.read()
                return answer.status

        first, second, third = (asyncio.create_task(send_chat()) for _ in range(3))
        await becomes(control, {"num_requests_running": 1, "num_requests_waiting": 2})
        second.cancel()
        await becomes(control, {"num_requests_running": 1, "num_requests_waiting": 1})
        first.cancel()
        await becomes(control, {"num_requests_running": 0, "num_requests_waiting": 1})
        present(parrot.gate).set()
        assert await third == 200
        await becomes(control, {"num_requests_running": 0, "num_requests_waiting": 0})
        page = await control.text("/metrics")
    assert parrot.stopped_early.is_set()
    assert len(parrot.jobs) == 2, "a request cancelled in the queue never starts"
    assert 'finished_reason="abort",model_name="parrot"} 2.0' in page


async def test_generator_error_is_reported_as_a_server_error() -> None:
    async with serving(Parrot(broken_after=2)) as url, ControlClient(url) as control:
        status, document = await post(url, "chat/completions", json=body(max_tokens=9))
        streamed = [one for one in await records_of(url, Output(max_tokens=30)) if not one.turn]
        page = await control.text("/metrics")
    assert (status, "the weights caught fire" in document["error"]["message"]) == (500, True)
    assert {record.error_class for record in streamed} == {"http_5xx"}
    assert all("the weights caught fire" in (record.error or "") for record in streamed)
    assert 'finished_reason="error",model_name="parrot"} 4.0' in page


@given(st.text(min_size=1), st.lists(st.integers(1, 5), min_size=1))
def test_text_decoded_in_steps_of_any_size_is_unchanged(text: str, sizes: list[int]) -> None:
    data, decoded, steps = tuple(text.encode(errors="ignore")), "", itertools.cycle(sizes)
    detokenizer = Detokenizer(lambda tokens: bytes(tokens).decode(errors="replace"))
    while data:
        size = next(steps)
        decoded += detokenizer.push(data[:size])
        data = data[size:]
    assert decoded + detokenizer.flush() == text.encode(errors="ignore").decode()
