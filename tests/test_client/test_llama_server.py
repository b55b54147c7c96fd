"""The llama.cpp server behind llama-server's flags: accepted flags, errors, and a real server."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aiohttp
import click
import pytest

from specbench_api.outcome.exit_codes import Exit
from specbench_api.spec.engine import EngineKind
from specbench_client.cli import exit_code
from specbench_client.dialects.registry import DIALECTS
from specbench_client.local import llama_server

PROMPT = "Repeat this exactly: one two three four five six seven eight nine ten eleven twelve thirteen fourteen."


def parse_flags(argv: Sequence[str]) -> dict[str, llama_server.FlagValue]:
    context = llama_server.llama_server.make_context("llama-server", list(argv))
    return llama_server.given_values(context.params)


def parse(*argv: str) -> dict[str, llama_server.FlagValue]:
    """Parse and check a command line as `main` does, without checking files."""
    values = parse_flags(argv)
    llama_server.reject_ineffective_flags(values, {})
    return values


def test_flags_are_parsed_in_every_spelling() -> None:
    expected = {
        "model.path": "m.gguf",
        "model_alias": ["smol", "demo"],
        "n_parallel": 4,
        "endpoint_metrics": True,
        "endpoint_slots": False,
        "ui": False,
        "speculative.types": ["draft-simple"],
        "speculative.draft.mparams.path": "d.gguf",
        "speculative.draft.n_max": 5,
    }
    speculation = ("--spec-type", "draft-simple", "-md", "d.gguf", "--spec-draft-n-max", "5")
    assert expected == parse(
        *("-m", "m.gguf", "-a", "smol,demo", "-np", "4", "--metrics", "--no-slots", "--no-ui"), *speculation
    )
    assert expected == parse(
        *("--model=m.gguf", "--alias=smol, demo", "--parallel=4", "--metrics", "--no-slots", "--no-webui"),
        *("--spec-type=draft-simple", "--spec_draft_model=d.gguf", "--spec-draft-n-max=5"),
    )


@pytest.mark.parametrize("kind", ["ngram-simple", "ngram-map-k", "ngram-map-k4v"])
def test_each_kind_of_lookup_has_its_own_flags(kind: str) -> None:
    field = f"speculative.{kind.replace('-', '_')}"
    values = parse("--spec-type", kind, f"--spec-{kind}-size-n", "4", f"--spec-{kind}-size-m", "8")
    assert values == {"speculative.types": [kind], f"{field}.size_n": 4, f"{field}.size_m": 8}


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--spec-tpye", "x"], "--spec-type"),
        (["--ctx-sizes=1"], "--ctx-size"),
        (["--draft-max", "8"], "--draft-max"),
        (["model.gguf"], "model.gguf"),
        (["-m"], "-m"),
        (["-np4"], "-n"),
        (["--metrics=1"], "--metrics"),
        (["-c", "lots"], "'-c' / '--ctx-size'"),
        (["--port", "70000"], "0<=x<=65535"),
        (["-t", "some"], "'-t' / '--threads'"),
        (["-fa", "perhaps"], "'on', 'off', 'auto'"),
        (["--alias", ","], "'-a' / '--alias'"),
        (["--spec-type", "magic"], "'none', 'draft-simple'"),
        (["--spec-type", "none,ngram-mod"], "none cannot be combined"),
        (["-md", "d.gguf"], "-md needs --spec-type draft-simple"),
        (["-md", "d.gguf", "--spec-type", "ngram-mod"], "-md needs --spec-type draft-simple"),
        (["--spec-type", "draft-simple"], "--spec-type draft-simple without -md FILE"),
        (["--spec-type", "draft-eagle3,ngram-mod"], "--spec-type draft-eagle3 without -md FILE"),
        (["--spec-draft-n-max", "4"], "--spec-draft-n-max needs --spec-type draft-simple"),
        (["--spec-draft-p-min", "0.5"], "--spec-draft-p-min needs --spec-type draft-simple"),
        (["--spec-ngram-simple-size-n", "4"], "--spec-ngram-simple-size-n needs --spec-type ngram-simple"),
        (["--spec-synth-len", "2.5"], "--spec-synth-len needs --spec-type"),
        (
            ["--spec-draft-sampling", "warm"],
            "'greedy', 'probabilistic'",
        ),
        (["--spec-draft-sampling", "greedy"], "--spec-draft-sampling needs --spec-type draft-simple"),
        (["--spec-type", "ngram-simple", "--spec-ngram-simple-size-m", "8"], "size-m (8) is below size-n (12)"),
    ],
)
def test_invalid_flag_is_rejected_with_its_name(argv: list[str], message: str) -> None:
    with pytest.raises(click.UsageError) as caught:
        parse(*argv)
    assert message in caught.value.format_message()


def test_draft_mtp_needs_no_draft_model_file() -> None:
    assert parse("--spec-type", "draft-mtp", "--spec-draft-n-max", "2")["speculative.types"] == ["draft-mtp"]


def test_llama_arg_environment_variables_are_rejected() -> None:
    with pytest.raises(llama_server.BadFlag, match="LLAMA_ARG_THREADS"):
        llama_server.reject_ineffective_flags({}, {"LLAMA_ARG_THREADS": "1", "PATH": "/bin"})


def test_missing_model_exits_with_2_and_its_path(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(["llama-server", "-m", "/nowhere/m.gguf"]) == Exit.BAD_INPUT
    assert "-m /nowhere/m.gguf: no such file" in capsys.readouterr().err


@pytest.mark.process
@pytest.mark.parametrize("fault", ["--port", "-m"])
def test_a_used_port_or_a_damaged_model_exits_with_2_and_names_it(tmp_path: Path, fault: str) -> None:
    pytest.importorskip("xllamacpp")
    model = tmp_path / "m.gguf"
    model.write_bytes(b"GGUF" + bytes(200))
    with socket.create_server(("127.0.0.1", 0)) as used:
        port = used.getsockname()[1] if fault == "--port" else 0
        words = [sys.executable, "-m", llama_server.__name__, "-m", str(model), "--port", str(port)]
        done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == Exit.BAD_INPUT
    assert {"--port in use", "damaged GGUF"} <= set(re.findall("--port in use|damaged GGUF", done.stderr))
    assert ("HTTP server error" in done.stderr) == (fault == "--port")


def test_missing_extra_is_reported_with_the_install_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    (tmp_path / "m.gguf").touch()
    assert exit_code(["llama-server", "-m", str(tmp_path / "m.gguf")]) == Exit.BAD_INPUT
    assert "pip install 'WHEEL[llama-cpp]'" in capsys.readouterr().err


def fake_library() -> Any:
    """Return the structure of the wheel's parameters, to check defaults of llama-server that the wheel lacks."""
    kinds = SimpleNamespace(COMMON_SPECULATIVE_TYPE_NONE="none", COMMON_SPECULATIVE_TYPE_NGRAM_MAP_K4V="k4v")
    flash = SimpleNamespace(LLAMA_FLASH_ATTN_TYPE_DISABLED="disabled")
    return SimpleNamespace(common_speculative_type=kinds, llama_flash_attn_type=flash)


def test_llama_server_defaults_override_the_wheels() -> None:
    params = SimpleNamespace(speculative=SimpleNamespace(), sampling=SimpleNamespace())
    values = parse("-c", "0", "--seed", "-1", "-fa", "off", "-a", "b,a", "--spec-type", "ngram-map-k4v")
    llama_server.configure(params, values, fake_library())
    assert vars(params) == {
        "port": 8080,
        "n_ctx": 0,
        "fit_params_min_ctx": -1,
        "n_parallel": 4,
        "kv_unified": True,
        "flash_attn_type": "disabled",
        "model_alias": {"a", "b"},
        "sampling": SimpleNamespace(seed=2**32 - 1),
        "speculative": SimpleNamespace(types=["none", "k4v"]),
    }


# -- the real server ---------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def launched(*argv: str) -> Iterator[subprocess.Popen[str]]:
    """Start the server as a process and kill it at the end of the block."""
    command = [sys.executable, "-m", "specbench_client.local.llama_server", *argv]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("LLAMA_ARG_")}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
        try:
            yield process
        finally:
            process.kill()


def readiness(process: subprocess.Popen[str]) -> str:
    """Read the log up to the line with the address, and return the address.

    The library logs from its own thread and in pieces, so the line may follow the start of another one.
    """
    assert process.stderr is not None
    seen = []
    for line in process.stderr:
        seen.append(line)
        if ready := re.search(r"llama_server: ready on (http\S+)$", line):
            return ready[1]
    raise AssertionError("".join(seen))


@contextlib.asynccontextmanager
async def serving(*argv: str) -> AsyncIterator[tuple[subprocess.Popen[str], aiohttp.ClientSession]]:
    """Yield a server that is healthy, and a session with its address."""
    with launched(*argv, "--port", "0", "-t", "1", "-c", "2048", "-np", "2", "--metrics", "--no-ui") as process:
        address = await asyncio.to_thread(readiness, process)
        async with aiohttp.ClientSession(base_url=address) as session:
            async with session.get("/health") as answer:
                assert (answer.status, await answer.json()) == (200, {"status": "ok"})
            yield process, session


def question(**more: Any) -> dict[str, Any]:
    fixed = {"temperature": 0, "stream": True, "stream_options": {"include_usage": True}, "cache_prompt": False}
    return {"messages": [{"role": "user", "content": PROMPT}], "max_tokens": 48, **fixed, **more}


async def streamed(session: aiohttp.ClientSession, **more: Any) -> list[dict[str, Any]]:
    headers = {"X-Request-Id": "specbench-1"}
    async with session.post("/v1/chat/completions", json=question(**more), headers=headers) as answer:
        answer.raise_for_status()
        lines = (await answer.text()).splitlines()
    data = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
    assert data[-1] == "[DONE]"
    return [json.loads(event) for event in data[:-1]]


@pytest.mark.engine
def test_every_flag_sets_a_field_of_the_wheel() -> None:
    library = pytest.importorskip("xllamacpp")
    samples = {
        "--alias": "a",
        "--spec-type": "ngram-mod",
        "--flash-attn": "on",
        "--spec-synth-len": "2.5",
        "--spec-draft-sampling": "probabilistic",
    }
    for flag in llama_server.FLAGS:
        name = flag.opts[-1]
        params = library.CommonParams()
        argv = [name] if flag.is_flag else [name, samples.get(name, "1")]
        llama_server.configure(params, parse_flags(argv), library)
    llama_server.configure(params, parse_flags(["-c", "0"]), library)
    assert (params.n_ctx, params.n_parallel, params.kv_unified) == (0, 4, True)


@pytest.mark.engine
async def test_wheel_is_reported_as_the_version(demo_models: dict[str, str]) -> None:
    library, dialect = pytest.importorskip("xllamacpp"), DIALECTS[EngineKind.LLAMA_CPP]
    async with serving("-m", demo_models["target"]) as (_, session):
        pages = {}
        for path in dialect.identity_paths:
            async with session.get(path) as page:
                pages[path] = await page.json()
    assert pages["/props"]["build_info"] == "b0-unknown", "the wheel identifies its build: read it from there"
    assert dialect.identity(pages).version == f"xllamacpp-{library.__version__}"


@pytest.mark.long
@pytest.mark.engine
async def test_drawn_drafts_are_accepted_more_often_at_temperature_1(demo_models: dict[str, str]) -> None:
    drafter = ["--spec-type", "draft-simple", "-md", demo_models["drafter"], "--spec-draft-n-max", "4"]
    rates = {}
    for how in ("greedy", "probabilistic"):
        async with serving("-m", demo_models["target"], *drafter, "--spec-draft-sampling", how) as (_, session):
            sampled = {"temperature": 1, "top_k": 0, "top_p": 1, "min_p": 0}
            requests = (streamed(session, **sampled, seed=seed, timings_per_token=True) for seed in range(4))
            answers = await asyncio.gather(*requests)
        ends = [answer[-1]["timings"] for answer in answers]
        rates[how] = sum(end["draft_n_accepted"] for end in ends) / sum(end["draft_n"] for end in ends)
    assert rates["probabilistic"] > rates["greedy"] + 0.1


@pytest.mark.engine
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_signal_ends_the_server_and_truncates_the_answer(
    demo_models: dict[str, str], number: signal.Signals
) -> None:
    async with serving("-m", demo_models["target"]) as (process, session):
        work = asyncio.create_task(streamed(session, ignore_eos=True, max_tokens=1000))
        while True:
            async with session.get("/slots") as slots:
                if any(slot["is_processing"] for slot in await slots.json()):
                    break
        process.send_signal(number)
        assert await asyncio.to_thread(process.wait, 60) == 0
        with pytest.raises(aiohttp.ClientError):
            await work
