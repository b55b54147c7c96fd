"""`specbench measure` as a user runs it, against servers with and without TLS."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from specbench_api.outcome.exit_codes import Exit
from specbench_client.cli import exit_code
from specbench_client.documents.summary import RunSummary
from specbench_client.simulator.config import SimulatorConfig
from specbench_client.simulator.engine import SimulatedEngine
from specbench_client.simulator.faults import parse_faults
from specbench_client.simulator.server import SimulatorServer, TruthFile, choose_dialect
from specbench_client.simulator.speculation import SimulatedMethod, make_drafter
from specbench_testing.closing_servers import ClosingTestServer
from specbench_testing.command_line import specbench_here
from specbench_testing.http_server import Reply, Request, http_server
from specbench_testing.secret_search import find_secrets
from specbench_testing.synthetic_records import measured_rows

pytestmark = pytest.mark.process

SPECBENCH = str(Path(sys.executable).with_name("specbench"))
CONFIG = SimulatorConfig(drafter=make_drafter(SimulatedMethod.EAGLE3, 3), time_scale=0.2, output_mean_tokens=24)


def command_of(cwd: Path, *arguments: str, program: Sequence[str] = (SPECBENCH,)) -> list[str]:
    """Return the command line of `measure`, and write its prompts."""
    prompts = cwd / "prompts.jsonl"
    prompts.write_text("".join(json.dumps({"prompt": f"What is the number {n}?"}) + "\n" for n in range(12)))
    fixed = ("--model", "simulated", "--dataset", str(prompts), "--max-tokens", "32")
    return [*program, "measure", *fixed, *arguments]


def measure(cwd: Path, *arguments: str, program: Sequence[str] = (SPECBENCH,)) -> subprocess.CompletedProcess[str]:
    """Run `measure` in a process of its own."""
    command = command_of(cwd, *arguments, program=program)
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=280, check=False)


def measure_here(cwd: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `measure` in this process."""
    return specbench_here(*command_of(cwd, *arguments, program=()), cwd=cwd)


@contextmanager
def serving(truth: Path, tls: ssl.SSLContext | None = None, config: SimulatorConfig = CONFIG) -> Iterator[str]:
    """Run a simulated engine in its own thread and yield its address."""
    loop, up, address = asyncio.new_event_loop(), threading.Event(), []

    async def start() -> ClosingTestServer:
        app = SimulatorServer(SimulatedEngine(config), choose_dialect("vllm", config), TruthFile(truth)).application()
        server = ClosingTestServer(app)
        await server.start_server(ssl=tls, shutdown_timeout=0.1)
        address.append(server.port)
        return server

    def run() -> None:
        server = loop.run_until_complete(start())
        up.set()
        loop.run_forever()
        loop.run_until_complete(server.close())

    thread = threading.Thread(target=run)
    thread.start()
    assert up.wait(60)
    try:
        yield f"{'https' if tls else 'http'}://localhost:{address[0]}"
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(20)
        loop.close()


def records(cwd: Path, arm: str | None = None) -> pd.DataFrame:
    """Return the measured rows of an arm, or of all."""
    records = pd.concat(pd.read_parquet(file) for file in cwd.rglob("points/*/records/*.parquet"))
    return measured_rows(records if arm is None else records[records["arm"] == arm])


def assert_equals_truth(measured: pd.DataFrame, truth_file: Path) -> None:
    """Assert that tokens, steps and accepted tokens are equal for each request."""
    truth = pd.read_json(truth_file, lines=True).set_index("request_id")
    seen = measured.set_index("request_id")
    expected = truth.loc[seen.index]
    for column in ("output_tokens", "steps", "accepted_tokens"):
        assert seen[column].astype(int).tolist() == expected[column].tolist(), column


def test_measured_records_equal_the_simulators_truth(tmp_path: Path) -> None:
    with serving(tmp_path / "truth.jsonl") as endpoint:
        fixed = ("--endpoint", endpoint, "--dialect", "vllm", "-c", "1,4", "--slo-e2e-ms", "600000")
        done = measure(tmp_path, *fixed, "--output", "json")
    assert done.returncode in (0, 3), done.stderr
    summary = json.loads(done.stdout)
    assert [cell["level"] for cell in summary["cells"]] == [{"concurrency": 1}, {"concurrency": 4}]
    assert [cell["goodput"]["sloAttainment"]["value"] for cell in summary["cells"]] == [1, 1]
    slices = summary["cells"][0]["breakdown"]
    measured = records(tmp_path)
    assert len(measured) == 2 * 12
    assert sum(each["steps"] for each in slices["byPosition"]) == measured[measured.phase == "steady"].steps[:12].sum()
    assert set(measured.timestamp_source) == {"kernel"}
    assert set(measured.connection) <= {"new", "kept"}
    assert_equals_truth(measured, tmp_path / "truth.jsonl")


def test_a_model_that_the_server_does_not_list_is_bad_input_and_leaves_nothing_behind(tmp_path: Path) -> None:
    with serving(tmp_path / "truth.jsonl") as endpoint:
        done = measure_here(tmp_path, "--endpoint", endpoint, "-c", "1", "--model", "simulatd")
    assert done.returncode == Exit.BAD_INPUT
    assert "serves simulated, but not simulatd: correct --model: did you mean simulated?" in done.stderr
    assert not list(tmp_path.rglob("plan.json"))


PAUSE_S, LOOK_S = 1.0, 0.02


def test_an_endpoint_over_tls_is_detected_and_measured_with_kernel_timestamps(
    tmp_path: Path, tls: ssl.SSLContext, certificate: tuple[Path, Path]
) -> None:
    (tmp_path / "prompts.jsonl").write_text("".join(f'{{"prompt": "Hello {n}"}}\n' for n in range(12)))
    with serving(tmp_path / "truth.jsonl", tls) as endpoint:
        options = ["--endpoint", f"{endpoint}/v1/chat/completions", "--dataset", "prompts.jsonl", "--workers", "2"]
        done = subprocess.run(
            [SPECBENCH, "measure", *options, "-c", "2"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "SSL_CERT_FILE": str(certificate[0])},
        )
    assert done.returncode in (0, 3), done.stderr
    detected = "detected: vLLM API of specbench simulated-0.1.0, model simulated, drafter k=3"
    assert done.stderr.splitlines()[0] == detected
    measured = records(tmp_path)
    assert set(measured.timestamp_source) == {"kernel"}
    assert set(measured.connection) == {"kept"}  # No TTFT contains a TLS handshake.
    assert_equals_truth(measured, tmp_path / "truth.jsonl")


BASELINE = replace(CONFIG, drafter=make_drafter(SimulatedMethod.NONE, 0))


@contextmanager
def two_servers(folder: Path) -> Iterator[tuple[str, ...]]:
    """Serve an engine with a drafter and one without; yield the flags that compare them."""
    with (
        serving(folder / "drafting.jsonl") as drafting,
        serving(folder / "baseline.jsonl", config=BASELINE) as baseline,
    ):
        yield "--endpoint", f"eagle3={drafting}", "--baseline", baseline, "--dialect", "vllm", "-c", "2"


def test_two_servers_are_interleaved_until_the_speedup_is_decided(tmp_path: Path) -> None:
    with two_servers(tmp_path) as flags:
        done = measure(tmp_path, *flags, "--requests", "10", "--until-sure", "--output", "json")
    assert done.returncode in (0, 3), done.stderr
    assert done.stderr.partition("results: ")[0].count("--restart-command") == 1
    measured = re.findall(r"^(\w+) at concurrency 2, repeat (\d+) of at most 32", done.stderr, re.MULTILINE)
    arms = [arm for arm, _ in measured]
    assert arms == (["none", "eagle3", "eagle3", "none"] * 16)[: len(arms)]
    summary = RunSummary.from_json(done.stdout)
    assert summary.decided_after == len(measured) / 2 == int(measured[-1][1])
    (cell,) = (cell for cell in summary.cells if cell.arm == "eagle3")
    assert cell.speedup is not None
    assert cell.speedup.interval is not None
    assert "confidence sequence" in cell.speedup.interval.method
    prompts = {arm: records(tmp_path, arm).groupby("repeat").prompt_id.agg(set) for arm in ("none", "eagle3")}
    assert prompts["none"].equals(prompts["eagle3"])
    assert len({frozenset(each) for each in prompts["none"]}) > 1
    for arm, truth in (("eagle3", "drafting"), ("none", "baseline")):
        assert_equals_truth(records(tmp_path, arm), tmp_path / f"{truth}.jsonl")


SHORT_REPEATS = (
    sys.executable,
    "-c",
    """from specbench_client import cli
from specbench_client.drive import load_probes
load_probes.REPEAT_S = 0.2
cli.main()""",
)
"""The command with repeats of a fifth of a second."""


def test_an_interrupted_comparison_continues_with_the_repeats_that_it_began(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The requests of a repeat are chosen from the duration of a request, which is never the same twice."""
    with two_servers(tmp_path) as servers:
        flags = (*servers, "--retries", "0")  # a busy machine adds no round
        command = command_of(tmp_path, *flags, program=SHORT_REPEATS)
        with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as first:
            assert first.stderr is not None
            said = list(takewhile(lambda line: "repeat 2/6" not in line, first.stderr))
            first.send_signal(signal.SIGINT)
            printed = first.stderr.read()
        assert any("and each repeat has" in line for line in said)
        assert first.returncode == 130
        before = {path.parent.name for path in tmp_path.rglob("manifest.json")}
        assert exit_code(["decide", str(tmp_path / "specbench-results")]) == Exit.BAD_INPUT
        done = measure(tmp_path, *flags, program=SHORT_REPEATS)
    assert "RunNotFinished" in capsys.readouterr().err
    count = f"{len(before)} of 12 points"
    assert printed.endswith(f"Interrupted after {count}, which are kept: run the same command again to continue\n")
    assert done.returncode in (0, 3), done.stderr
    assert f"continuing: {count} are measured already\n" in done.stderr
    assert "and each repeat has" not in done.stderr
    assert "repeat 1/6" not in done.stderr
    assert len(before) >= 2
    assert len(list(tmp_path.glob("specbench-results/runs/local/simulated/*/"))) == 1
    assert len({path.parent.name for path in tmp_path.rglob("manifest.json")}) == 12


STUCK_ANALYSIS = (
    sys.executable,
    "-c",
    """import signal, sys
from specbench_client import cli
from specbench_client.stored_runs import write_results
def stuck(*_):
    print("rendering", file=sys.stderr, flush=True)
    signal.pause()
write_results.render_html = stuck
cli.main()""",
)
"""The command, whose analysis waits for a signal before it writes anything."""
FULL_DISK = ("sh", "-c", 'ulimit -f 1; exec "$0" "$@"', SPECBENCH)
"""The command, for which the kernel rejects files above 512 bytes as on a full disk."""


def test_a_run_that_ends_between_its_last_point_and_its_report_is_only_analyzed_again(tmp_path: Path) -> None:
    with serving(tmp_path / "truth.jsonl") as url:
        flags = ("--endpoint", url, "-c", "1,2")
        command = command_of(tmp_path, *flags, program=STUCK_ANALYSIS)
        with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as first:
            assert first.stderr is not None
            assert "analyzing the records" in "".join(takewhile(lambda line: line != "rendering\n", first.stderr))
            first.send_signal(signal.SIGTERM)
            printed = first.stderr.read()
        manifests = {path: path.read_bytes() for path in tmp_path.rglob("manifest.json")}
        full = measure(tmp_path, *flags, program=FULL_DISK)
        again = measure_here(tmp_path, *flags)
        answered = (tmp_path / "truth.jsonl").read_text()
        anew = measure_here(tmp_path, *flags)
    kept = "2 of 2 points, which are kept, only the report is missing"
    assert (first.returncode, printed) == (130, f"Interrupted after {kept}: run the same command again to continue\n")
    assert len(manifests) == 2
    assert full.returncode == 5
    assert "2 of 2 points, which are kept, only the report is missing" in full.stderr
    assert again.returncode in (0, 3), again.stderr
    assert "only the report is missing" in again.stderr
    assert "endpoint at " not in again.stderr
    assert {path: path.read_bytes() for path in manifests} == manifests
    assert anew.returncode in (0, 3), anew.stderr
    assert "endpoint at concurrency 1" in anew.stderr, "a complete run is measured again"
    assert len((tmp_path / "truth.jsonl").read_text()) > len(answered)
    assert len(list(tmp_path.rglob("report.html"))) == 2


def test_an_arm_that_answers_wrongly_is_found_and_not_recommended(tmp_path: Path) -> None:
    """Questions as in GSM8K, whose answer the simulator computes; with more than two draft tokens, half are wrong."""
    rows = [{"question": f"A has {n} eggs and buys 3. How many?", "answer": f"{n}+3\n#### {n + 3}"} for n in range(30)]
    (tmp_path / "gsm8k.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    wrong = replace(CONFIG, faults=parse_faults(("wrong-deep=2",)))
    with (
        serving(tmp_path / "a.jsonl", config=BASELINE) as baseline,
        serving(tmp_path / "b.jsonl", config=wrong) as deep,
    ):
        servers = ["--endpoint", f"deep={deep}", "--baseline", baseline, "--dataset", "gsm8k:gsm8k.jsonl"]
        options = ["-c", "2", "-n", "30", "--repeats", "2", "--answers", '{"expected": {"match": "Number"}}']
        done = specbench_here("measure", *servers, *options, "--output", "json", cwd=tmp_path)
    assert done.returncode in (0, 3), done.stderr
    summary = json.loads(done.stdout)
    (cell,) = [each for each in summary["cells"] if each["arm"] == "deep"]
    damaged = pd.read_json(tmp_path / "b.jsonl", lines=True).set_index("request_id")["text_faults"].map(bool)
    measured = records(tmp_path, "deep").set_index("request_id")
    assert (measured["flaw"] == "WrongAnswer").tolist() == damaged.loc[measured.index].tolist()
    assert records(tmp_path, "none")["flaw"].isna().all()
    assert list(cell["judged"]["flaws"]) == ["WrongAnswer"]
    assert "AnswersWorse" in cell["findings"]
    assert "worse" in summary["recommendation"]["ruledOut"]["deep"]


@pytest.mark.parametrize(
    ("reply", "message"), [((401, {}, b""), "OPENAI_API_KEY"), ((307, {"Location": "http://x/"}, b""), "http://x/")]
)
def test_permanent_error_is_not_retried(tmp_path: Path, reply: Reply, message: str) -> None:
    requests: list[Request] = []

    def answer(request: Request) -> Reply:
        requests.append(request)
        return reply

    with http_server(answer) as port:
        done = measure_here(tmp_path, "--endpoint", f"http://127.0.0.1:{port}", "-c", "1")
    assert done.returncode == 4, done.stderr
    assert message in done.stderr.splitlines()[-1]
    assert len(requests) == 1


@contextmanager
def gateway(*rejected: str, route: str = "/v1/chat/completions") -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Serve OpenAI's API without streams, and yield the URL and the bodies that were received.

    Rejects these fields, one prompt with an echo of the key, and other routes.
    """
    bodies: list[dict[str, Any]] = []
    message = {"role": "assistant", "content": "four words of text"}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}

    def reply(status: int, document: Any) -> Reply:
        return status, {}, json.dumps(document).encode()

    def answer(request: Request) -> Reply:
        if request.method == "GET":
            return reply(200 if request.target == "/v1/models" else 404, {"data": [{"id": "simulated"}]})
        body = json.loads(request.body)
        if request.target != route:
            return reply(307, {})
        bodies.append(body)
        if named := sorted(body.keys() & rejected):
            return reply(400, {"error": {"message": f"'{named[0]}' is not supported, use 'max_completion_tokens'"}})
        if body["messages"][-1]["content"].endswith("number 3?"):
            return reply(400, {"error": {"message": f"too long for {request.headers['api-key']}"}})
        return reply(200, {"choices": [choice], "usage": {"prompt_tokens": 9, "completion_tokens": 4}})

    with http_server(answer) as port:
        yield f"http://127.0.0.1:{port}", bodies


def test_fields_that_one_server_rejects_are_left_out_for_both_and_a_rejected_prompt_is_counted(tmp_path: Path) -> None:
    key = "words of a key"
    slashed = "/v1/chat/completions/"
    with gateway() as (one, to_one), gateway("seed", "max_tokens", route=slashed) as (other, _):
        done = measure_here(
            tmp_path, "--endpoint", other + slashed, "--baseline", one, "-c", "2", "--requests", "12", "--repeats", "1",
            "--warmup", "0", "--no-stream", "--header", f"api-key: {key}", "--keep-text",
        )  # fmt: skip
    assert done.returncode == Exit.UNTRUSTWORTHY, done.stderr
    (plan,) = (json.loads(file.read_text()) for file in tmp_path.rglob("plan.json"))
    assert plan["workloads"][0]["extraBody"] == {"seed": None, "max_tokens": None, "max_completion_tokens": 32}
    measured = [body for body in to_one if body["max_completion_tokens" if "max_tokens" not in body else "seed"] == 32]
    assert len(measured) > 12
    assert all(body["stream"] is False and "seed" not in body for body in measured)
    assert sum("seed" in body for body in to_one) == 1, "the first completion, before the other server rejected it"
    failed = records(tmp_path)
    assert set(failed[failed["error_class"].notna()]["error_class"]) == {"http_4xx"}
    summary = json.loads(min(tmp_path.rglob("summary.json"), key=lambda file: len(file.parts)).read_text())
    rejected = [each["message"] for each in summary["findings"] if each["check"] == "RequestsFailed"]
    assert rejected
    assert all("the server rejected prompts " in message for message in rejected)
    written = {str(file): file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    assert find_secrets({"key": key}, {**written, "terminal": (done.stdout + done.stderr).encode()}) == []


@pytest.mark.parametrize(
    "given",
    [
        ("--header", "api-key=words-of-a-key"),
        ("--endpoint", "Bad=http://me:words-of-a-key@h"),
        ("--baseline", "b=http://me:words-of-a-key@h"),
        ("--baseline", "http://h/v1?code=words-of-a-key"),
    ],
)
def test_an_error_about_an_option_does_not_repeat_its_key(tmp_path: Path, given: tuple[str, str]) -> None:
    done = measure_here(tmp_path, "--endpoint", "http://127.0.0.1:9", "-c", "1", *given)
    assert done.returncode == Exit.BAD_INPUT
    assert "words-of" not in done.stdout + done.stderr
