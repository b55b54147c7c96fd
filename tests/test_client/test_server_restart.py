"""`--restart-command`: running servers are launched anew for each of their repeats."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from itertools import count, takewhile
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from specbench_api.outcome.exit_codes import Exit
from specbench_api.plan.expansion import lay_out
from specbench_api.plan.plan import EngineGroup, Plan
from specbench_api.spec.conditions import EngineReason
from specbench_client.dialects.dialect import EngineCounters, is_same_process
from specbench_client.documents.summary import PointSummary, RunSummary
from specbench_client.drive.options import ClientOptions
from specbench_client.errors import EngineFailed
from specbench_client.local import executor, server_restart
from specbench_client.local.executor import LocalOptions, execute_locally
from specbench_client.local.server_restart import restart_server
from specbench_client.store.folder import FolderStore
from specbench_client.stored_runs.run import Run
from specbench_testing.http_server import Reply, Request, http_server
from specbench_testing.operator_process import eventually
from specbench_testing.ports import free_port
from specbench_testing.resources import run_of


def plan_at(*urls: str, repeats: int = 2) -> Plan:
    endpoints = [
        {"name": name, "url": url, "dialect": "vllm"} for name, url in zip(("none", "eagle3"), urls, strict=False)
    ]
    spec = {"spec.engine": {"kind": "external", "endpoints": endpoints}, "spec.drafters": []}
    plan = lay_out(run_of({**spec, "spec.load": {"concurrency": [1], "requests": 5, "repeats": repeats}}))
    return plan.model_copy(update={"restarts": True})


async def restart(command: str, url: str, log: Path, deadline_s: float = 20.0) -> None:
    plan = plan_at("http://a:1", url)
    await restart_server(plan, plan.arm("eagle3"), ClientOptions(restart_command=command), log, deadline_s)


# Whether another process answers.

USED = EngineCounters(prompt_tokens=40, output_tokens=100)


@pytest.mark.parametrize(
    ("before", "after", "is_same"),
    [
        (USED, USED, True),
        (USED, EngineCounters(prompt_tokens=40, output_tokens=101), True),
        (USED, EngineCounters(prompt_tokens=40, output_tokens=99), False),
        (USED, EngineCounters(prompt_tokens=0, output_tokens=0), False),
        (USED, EngineCounters(unread="refused"), False),
        (EngineCounters(output_tokens=0), EngineCounters(output_tokens=0), False),  # nothing shows it
        (EngineCounters(), EngineCounters(), False),
        (EngineCounters(started_s=5.0), EngineCounters(started_s=5.0), True),
        (EngineCounters(started_s=5.0), EngineCounters(started_s=5.5), False),
        (EngineCounters(started_s=5.0), EngineCounters(), False),
        (EngineCounters(started_s=5.0, output_tokens=8), EngineCounters(started_s=6.0, output_tokens=8), False),
        (EngineCounters(started_s=5.0, output_tokens=0), EngineCounters(started_s=5.0, output_tokens=0), True),
    ],
)
def test_counters_that_did_not_fall_or_an_equal_start_show_the_same_process(
    before: EngineCounters, after: EngineCounters, *, is_same: bool
) -> None:
    assert is_same_process(before, after) is is_same


# Servers that do not restart.


def page(tokens: int) -> Reply:
    return 200, {}, f'vllm:generation_tokens_total{{model_name="m"}} {tokens}\n'.encode()


async def test_an_old_process_that_still_answers_after_the_command_is_waited_for(tmp_path: Path) -> None:
    readings = count(1)

    def answer(request: Request) -> Reply:
        return page(100 if next(readings) < 5 else 3) if request.target == "/metrics" else (200, {}, b"")

    with http_server(answer) as port:
        await restart("true", f"http://127.0.0.1:{port}", tmp_path / "log")
    assert next(readings) == 6


async def test_a_command_that_restarts_nothing_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_restart, "ENDS_WITHIN_S", 0.2)
    with http_server(lambda _: page(100)) as port, pytest.raises(EngineFailed) as caught:
        await restart("echo it restarts; echo later >&2", f"http://127.0.0.1:{port}", tmp_path / "log")
    assert caught.value.reason == EngineReason.NEVER_READY
    where = f"--restart-command for eagle3 at http://127.0.0.1:{port}: the old process still answers 0.2 s after it"
    assert str(caught.value).startswith(where)
    assert str(caught.value).endswith("; the end of its output: it restarts\nlater")


async def test_a_command_that_fails_is_an_error_with_the_end_of_its_output(tmp_path: Path) -> None:
    with pytest.raises(EngineFailed) as caught:
        await restart("echo 'no unit vllm-eagle3' >&2; exit 5", f"http://127.0.0.1:{free_port()}", tmp_path / "log")
    assert caught.value.reason == EngineReason.NEVER_READY
    assert "for eagle3 at http://127.0.0.1:" in str(caught.value)
    assert "it ended with 5: correct it; the end of its output: no unit vllm-eagle3" in str(caught.value)


async def test_a_server_that_does_not_come_back_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(EngineFailed, match=r"not healthy within 1 s.*its output: out of memory") as caught:
        await restart("echo out of memory", f"http://127.0.0.1:{free_port()}", tmp_path / "log", 1.0)
    assert caught.value.reason == EngineReason.NEVER_READY


IN_FRONT = 'echo $$ > "{}"; exec sleep 600'
"""A server in the foreground: the command does not end."""


async def test_a_command_that_does_not_end_is_ended_and_an_error(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    with pytest.raises(EngineFailed, match=r"did not end within 1 s: .*nohup"):
        await restart(IN_FRONT.format(pid), f"http://127.0.0.1:{free_port()}", tmp_path / "log", 1.0)
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)


async def test_an_interrupted_command_is_ended(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    task = asyncio.create_task(restart(IN_FRONT.format(pid), f"http://127.0.0.1:{free_port()}", tmp_path / "log"))
    await asyncio.to_thread(eventually, lambda: pid.exists() and pid.read_text())
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)


# The groups of a run.


@pytest.mark.parametrize(
    ("restarts", "expected"),
    [
        (False, [("none", True), ("eagle3", True), ("eagle3", False), ("none", False)]),
        (True, [(arm, True) for arm in ("none", *["eagle3"] * 3, "none")]),
    ],
)
def test_a_restarted_server_is_warmed_up_again_and_restarted_once_more_if_it_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, restarts: bool, expected: list[tuple[str, bool]]
) -> None:
    """A server that keeps running is not restarted, and its arm ends when it is lost."""
    driven: list[tuple[str, bool]] = []

    async def drive(_: Run, group: EngineGroup, options: LocalOptions) -> None:
        driven.append((group.arm, options.warm_up))
        if restarts and group.index == 1:
            raise EngineFailed("it is gone", EngineReason.LOST)

    monkeypatch.setattr(executor, "_launch_and_drive", drive)
    plan = plan_at("http://a:1", "http://b:1").model_copy(update={"restarts": restarts or None})
    failed = asyncio.run(execute_locally(Run(FolderStore(tmp_path), plan), LocalOptions(tmp_path, tmp_path, 1.0)))
    assert (driven, list(failed)) == (expected, ["eagle3"] if restarts else [])


# The command as a user runs it, with simulators that are killed and started again.

SPECBENCH = str(Path(sys.executable).with_name("specbench"))
RESTART = """
port=${SPECBENCH_ENDPOINT##*:}
echo "$SPECBENCH_ARM $SPECBENCH_ENDPOINT" >> restarts
if [ -f $port.pid ]; then kill -9 $(cat $port.pid); fi
[ $SPECBENCH_ARM = none ] && drafter=none || drafter=eagle3
nohup "$0" simulate --port $port --drafter $drafter --time-scale 0.2 --output-mean 24 --enable-prefix-caching &
echo $! > $port.pid
"""
"""The old server may still answer for a moment, and the new one takes half a second until it does."""


@pytest.fixture
def urls(tmp_path: Path) -> Iterator[tuple[str, str]]:
    """The addresses of two running servers, whose pids are in files in the folder."""
    (tmp_path / "restart.sh").write_text(RESTART)
    (tmp_path / "prompts.jsonl").write_text(
        "".join(json.dumps({"prompt": f"What is {n} {'and what else ' * 20}"}) + "\n" for n in range(6))
    )
    found = f"http://127.0.0.1:{free_port()}", f"http://127.0.0.1:{free_port()}"
    try:
        for arm, url in zip(("none", "eagle3"), found, strict=True):
            variables = {**os.environ, "SPECBENCH_ARM": arm, "SPECBENCH_ENDPOINT": url}
            subprocess.run(["sh", "-c", RESTART, SPECBENCH], cwd=tmp_path, env=variables, check=True)
            eventually(partial(answers, url))
        (tmp_path / "restarts").unlink()
        yield found
    finally:
        for pid in tmp_path.glob("*.pid"):
            with suppress(ProcessLookupError):
                os.kill(int(pid.read_text()), signal.SIGKILL)


def answers(url: str) -> bool:
    try:
        with urlopen(f"{url}/health"):
            return True
    except (URLError, ConnectionError):
        return False


@pytest.mark.process
def test_each_turn_of_a_server_has_a_launch_of_its_own_also_after_an_interruption(
    tmp_path: Path, urls: tuple[str, str]
) -> None:
    """Its repeats may send the same prompts again."""
    flags = ("--baseline", urls[0], "--endpoint", f"eagle3={urls[1]}", "-c", "2", "--requests", "6", "--repeats", "3")
    fixed = ("--dataset", "prompts.jsonl", "--max-tokens", "32", "--retries", "0", "--output", "json")
    command = [SPECBENCH, "measure", *flags, *fixed, "--restart-command", f"sh -c \"$(cat restart.sh)\" '{SPECBENCH}'"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as first:
        assert first.stderr is not None
        said = list(takewhile(lambda line: "launch 3/6: eagle3" not in line, first.stderr))
        first.send_signal(signal.SIGINT)
        first.stderr.read()
    assert not any("--restart-command" in line or "are needed to send none twice" in line for line in said)
    assert first.returncode == Exit.INTERRUPTED
    before = len(list(tmp_path.rglob("manifest.json")))
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode in (Exit.OK, Exit.UNTRUSTWORTHY), done.stderr
    assert f"continuing: {before} of 6 points are measured already" in done.stderr

    turns = [line.split() for line in (tmp_path / "restarts").read_text().splitlines()]
    arms = [arm for arm, _ in turns]
    assert {(arm, url) for arm, url in turns} == {("none", urls[0]), ("eagle3", urls[1])}
    assert before == 2
    assert [*arms[:2], *arms[-4:]] == ["none", "eagle3", "eagle3", "none", "none", "eagle3"]

    findings = {finding.check for finding in RunSummary.from_json(done.stdout).findings}
    assert not {"RepeatsApart", "PromptsSentAgain"} & findings
    points = [PointSummary.from_json(path.read_bytes()) for path in tmp_path.rglob("points/*/summary.json")]
    assert len({point.engine_launch for point in points}) == len(points) == 6
    assert all(point.client_health.warmup_requests for point in points)
