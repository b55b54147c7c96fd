"""The simulator's prefix cache: which tokens of a prompt are reused, what is evicted, and what the answers report."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from specbench_api.spec.dataset import Sessions
from specbench_client.drive.group import drive_group
from specbench_client.drive.options import DriveOptions
from specbench_client.errors import EngineFailed
from specbench_client.load.conversations import is_filler
from specbench_client.simulator import SimulatorConfig
from specbench_client.simulator.dialect import json_page
from specbench_client.simulator.engine import SimulatedEngine
from specbench_client.simulator.prefix_cache import BLOCK_TOKENS, PrefixCache
from specbench_client.simulator.vllm import reset_prefix_cache
from specbench_client.store.folder import FolderStore
from specbench_testing.simulated_groups import plan_of, records_of, simulator, write_prompts
from specbench_testing.simulator_client import CHAT, accepted_response, serve_dialect

CACHING = SimulatorConfig(time_scale=0, output_mean_tokens=40, prefix_cache_tokens=100_000)
SYSTEM = " ".join(f"rule{number}" for number in range(100))


def tokens(count: int, name: str = "t") -> list[str]:
    return [f"{name}{number}" for number in range(count)]


def test_full_blocks_of_a_shared_beginning_are_reused_but_never_the_last_token() -> None:
    cache = PrefixCache(10_000)
    cache.add(tokens(40))
    assert cache.cached_tokens(tokens(40)) == 32
    assert cache.cached_tokens(tokens(32)) == 16, "the last token is always computed"
    assert cache.cached_tokens([*tokens(20), "other", *tokens(40)[21:]]) == 16
    assert cache.cached_tokens(["other", *tokens(40)]) == 0
    cache.empty()
    assert cache.cached_tokens(tokens(40)) == 0


def test_the_block_unused_for_longest_is_evicted_and_the_end_of_a_sequence_first() -> None:
    cache = PrefixCache(4 * BLOCK_TOKENS)
    cache.add(tokens(32, "a"))
    cache.add(tokens(32, "b"))
    assert cache.cached_tokens(tokens(33, "a")) == 32, "now a was used last"
    cache.add(tokens(16, "c"))
    assert [cache.cached_tokens(tokens(33, name)) for name in "abc"] == [32, 16, 16]
    PrefixCache(0).add(tokens(100))
    assert PrefixCache(0).cached_tokens(tokens(100)) == 0


@given(st.lists(st.lists(st.sampled_from("ab"), max_size=80), max_size=8), st.integers(0, 12))
def test_what_is_reused_was_at_the_beginning_of_an_earlier_sequence(sequences: list[list[str]], blocks: int) -> None:
    cache = PrefixCache(blocks * BLOCK_TOKENS)
    for number, sequence in enumerate(sequences):
        cached = cache.cached_tokens(sequence)
        earlier = sequences[:number]
        assert cached == 0 or any(sequence[:cached] == one[:cached] and len(one) >= cached for one in earlier)
        assert cached <= min(max(len(sequence) - 1, 0), blocks * BLOCK_TOKENS)
        cache.add(sequence)


def chat(*messages: tuple[str, str]) -> dict[str, Any]:
    turns = [{"role": role, "content": content} for role, content in messages]
    return {"model": "simulated", "messages": turns, "max_tokens": 30, "ignore_eos": True, "temperature": 0}


@pytest.mark.parametrize(("dialect", "route"), [("vllm", "/reset_prefix_cache"), ("sglang", "/flush_cache")])
async def test_a_conversation_reuses_its_history_until_the_cache_is_emptied(dialect: str, route: str) -> None:
    async with serve_dialect(dialect, CACHING) as client:

        async def ask(*messages: tuple[str, str]) -> tuple[str, int]:
            answer = await accepted_response(client, chat(*messages), CHAT)
            details = answer["usage"]["prompt_tokens_details"] or {"cached_tokens": 0}
            return answer["choices"][0]["message"]["content"], details["cached_tokens"]

        first = ("system", SYSTEM), ("user", "one two three four")
        reply, cached = await ask(*first)
        assert cached == 0
        _, cached = await ask(*first, ("assistant", reply), ("user", "and now five six seven"))
        assert cached == (100 + 4 + 30) // BLOCK_TOKENS * BLOCK_TOKENS
        _, cached = await ask(("system", SYSTEM), ("user", "something else"))
        assert cached == 100 // BLOCK_TOKENS * BLOCK_TOKENS
        async with client.post(route) as response:
            assert response.status == 200
        _, cached = await ask(*first)
        assert cached == 0


async def records_as_served(
    prompts: Path, dialect: str, config: SimulatorConfig, edits: dict[str, Any]
) -> pd.DataFrame:
    """The records of a measurement with the engine's prompt cache as served, in order, without the warm-up."""
    folder = prompts.parent
    common = {
        "spec.promptCache": "AsServed",
        "spec.engine": {"kind": "simulator", "dialect": dialect},
        "spec.load": {"concurrency": [1], "repeats": 1, "warmupRequests": 2},
        "spec.drafters": [],
    }
    plan, store = plan_of(prompts, common | edits), FolderStore(folder / "results")
    async with simulator(folder / "truth.jsonl", config, dialect) as engine:
        await drive_group(plan, plan.groups[0], engine.url, store, DriveOptions(attempt="1-a"))
    records = records_of(plan, store)
    return records[records["phase"] != "warmup"].sort_values("intended_ns")


async def drive(folder: Path, dialect: str, config: SimulatorConfig) -> tuple[list[float], list[float]]:
    """Cached tokens of the first request and in all, for each of two points, of prompts that share their beginning."""
    load = {"concurrency": [1], "repeats": 2, "warmupRequests": 2, "order": "Sequential"}
    prompts = write_prompts(folder / "p.jsonl", text=SYSTEM)
    records = await records_as_served(prompts, dialect, config, {"spec.load": load})
    measured = records.groupby("point", sort=False)
    cached = [each["cached_tokens"].fillna(0) for _, each in measured]
    return [float(each.iloc[0]) for each in cached], [float(each.sum()) for each in cached]


@pytest.mark.process
@pytest.mark.parametrize("dialect", ["vllm", "sglang"])
async def test_the_cache_is_emptied_before_each_point_that_is_measured_as_served(tmp_path: Path, dialect: str) -> None:
    first, total = await drive(tmp_path, dialect, CACHING)
    assert first == [0, 0], "the first request of a point finds an empty cache"
    assert total[0] == total[1] >= 5 * 96


@pytest.mark.process
@pytest.mark.parametrize("tokens", [100, 1000])
async def test_exactly_the_blocks_of_the_system_prompt_are_shared_by_all_prompts(tmp_path: Path, tokens: int) -> None:
    system = {"spec.workloads[0].systemPrompt": {"tokens": tokens}}
    records = await records_as_served(write_prompts(tmp_path / "p.jsonl"), "vllm", CACHING, system)
    records = records[records["phase"] == "steady"]
    # The filler before the first measured prompt has the system prompt too, as a server in production does.
    assert records["cached_tokens"].tolist() == [tokens // BLOCK_TOKENS * BLOCK_TOKENS] * 6
    assert (records["input_tokens"] - tokens).tolist() == [7] * 6


SESSIONS = [
    {"turns": 4, "turnTokens": 50, "answerTokens": 30, "sharedPrefixTokens": 96},
    {"turns": 3, "turnTokens": 17, "answerTokens": 15},
    {"turns": 1, "turnTokens": 16, "answerTokens": 8, "sharedPrefixTokens": 1024},
]


@pytest.mark.process
@pytest.mark.parametrize("lengths", SESSIONS, ids=lambda lengths: str(lengths["turns"]))
async def test_the_records_of_sessions_have_the_computed_share_of_hits(tmp_path: Path, lengths: dict[str, Any]) -> None:
    edits = {
        "spec.workloads[0].dataset": {"source": "sessions", "count": 12, "sessions": lengths},
        "spec.workloads[0].output": {"maxTokens": 30},
        "spec.load": {"concurrency": [4], "repeats": 1, "warmupRequests": 2},
    }
    records = await records_as_served(tmp_path / "unused", "vllm", CACHING, edits)
    measured = records[records["phase"] == "steady"]
    turns, shared = lengths["turns"], lengths.get("sharedPrefixTokens", 0)
    cycle = lengths["turnTokens"] + lengths["answerTokens"]
    by_turn = measured.groupby("turn")[["input_tokens", "cached_tokens"]].agg(["min", "max"])
    for turn in range(turns):
        before = shared + turn * cycle
        expected = [before + lengths["turnTokens"]] * 2 + [before // BLOCK_TOKENS * BLOCK_TOKENS] * 2
        assert by_turn.iloc[turn].tolist() == expected
    assert len(measured) == 12 * turns
    share = measured["cached_tokens"].sum() / measured["input_tokens"].sum()
    assert share == pytest.approx(Sessions.model_validate(lengths).reusable_share, rel=1e-12)


@pytest.mark.process
async def test_turns_of_a_conversation_wait_for_their_user(tmp_path: Path) -> None:
    edits = {
        "spec.workloads[0].thinkTime": {"seconds": 0.2, "distribution": "Constant"},
        "spec.load": {"concurrency": [2], "repeats": 1, "warmupRequests": 2},
    }
    records = await records_as_served(write_prompts(tmp_path / "p.jsonl", turns=3), "vllm", CACHING, edits)
    talks = records[~records["prompt_id"].map(is_filler)].groupby("conversation_id")
    assert len(talks) == 6
    for _, talk in talks:
        waited_ns = talk["intended_ns"].iloc[1:].to_numpy() - talk["last_token_ns"].iloc[:-1].to_numpy()
        assert len(waited_ns) == 2
        assert waited_ns.min() >= 200_000_000, "from the end of the answer"
        assert (talk["sent_ns"] >= talk["intended_ns"]).all(), "the wait is no latency"


@pytest.mark.process
async def test_an_engine_whose_cache_cannot_be_emptied_fails_with_the_route(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("specbench_client.drive.engine_connection.cache_reset_route", lambda _: "/no-such-route")
    with pytest.raises(EngineFailed, match=r"cannot be emptied .*POST http://.*/no-such-route"):
        await asyncio.wait_for(drive(tmp_path, "vllm", CACHING), 60)


@pytest.mark.process
@pytest.mark.parametrize("refusals", [1, 1000])
async def test_vllms_refusal_to_empty_its_cache_is_retried_and_then_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refusals: int
) -> None:
    """It answers 200, as if the cache were empty, while it holds blocks."""
    refused = iter([True] * refusals)

    def reset(engine: SimulatedEngine) -> web.Response:
        return json_page({"success": False}) if next(refused, False) else reset_prefix_cache(engine)

    monkeypatch.setattr("specbench_client.simulator.vllm.reset_prefix_cache", reset)
    monkeypatch.setattr("specbench_client.drive.engine_connection.CACHE_RESET_PAUSE_S", 0)
    if refusals == 1:
        first, _ = await drive(tmp_path, "vllm", CACHING)
        assert first == [0, 0]
        return
    with pytest.raises(EngineFailed, match=r'cannot be emptied .*POST /reset_prefix_cache answered {"success":false}'):
        await asyncio.wait_for(drive(tmp_path, "vllm", CACHING), 60)
