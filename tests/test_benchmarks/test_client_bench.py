"""The client benchmark: its server, the adapters of clients, the comparison of their times, and its table."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client_bench.cases import Case
from client_bench.clients.client import BenchmarkJob, Client, ObservedRequest
from client_bench.clients.registry import CLIENTS
from client_bench.clockserver import ClockServer, Pace
from client_bench.cpu import CpuLog, cores, tree_cpu_s
from client_bench.markdown_table import markdown, medians
from client_bench.run import Run, run_once
from client_bench.server_responses import length, pieces
from client_bench.timing_accuracy import Judgement, NothingFound, Spread, TrueRequest, compare_with_truth, read_truth

CASE = Case("small", streams=3, requests=7, max_tokens=11)


@pytest.fixture
def job(tmp_path: Path) -> BenchmarkJob:
    return BenchmarkJob("http://127.0.0.1:1234", CASE, tmp_path)


@pytest.mark.parametrize("client", CLIENTS.values(), ids=CLIENTS)
def test_every_client_command_has_the_same_load_url_and_output_folder(client: Client, job: BenchmarkJob) -> None:
    words = " ".join(client.command(job).argv)
    assert job.url in words
    for number in ("3", "7", "11"):
        assert any(word.rpartition("=")[2].rpartition(":")[2] == number for word in words.replace(",", " ").split())
    assert str(job.folder) in words


def test_there_is_one_distinct_prompt_of_equal_length_per_request(job: BenchmarkJob) -> None:
    prompts = job.prompts()
    assert len(set(prompts)) == len(prompts) == 7
    assert len({len(prompt) for prompt in prompts}) == 1


def test_aiperf_output_has_chunk_gaps_after_a_wall_clock_start(job: BenchmarkJob) -> None:
    row = {
        "metadata": {"x_request_id": "a", "request_start_ns": 5_000},
        "metrics": {
            "time_to_first_token": {"value": 0.002, "unit": "ms"},
            "inter_chunk_latency": {"value": [0.001, 0.003], "unit": "ms"},
        },
    }
    failed = {"metadata": {"x_request_id": "b", "request_start_ns": 5_000}, "metrics": {}}
    (job.folder / "aiperf").mkdir()
    lines = "".join(json.dumps(one) + "\n" for one in (row, failed))
    (job.folder / "aiperf/profile_export.jsonl").write_text(lines)

    observed = CLIENTS["aiperf"].read(replace(job, monotonic_less_wall_ns=-4_000))

    assert observed == [ObservedRequest(None, "a", 2_000, [3_000, 4_000, 7_000], absolute=True)]


def test_vllm_output_has_chunk_gaps_after_a_monotonic_start(job: BenchmarkJob) -> None:
    output = {
        "generated_texts": ["0000000000000004 word", ""],
        "start_times": [10.0, 11.0],
        "ttfts": [0.5, 0.0],
        "itls": [[0.25], []],
        "errors": ["", "refused"],
    }
    (job.folder / "vllm.json").write_text(json.dumps(output))

    assert CLIENTS["vllm"].read(job) == [
        ObservedRequest(4, None, 500_000_000, [10_500_000_000, 10_750_000_000], absolute=True),
    ]


def test_sglang_output_has_chunk_gaps_without_a_start_time(job: BenchmarkJob) -> None:
    output = {"generated_texts": ["0000000000000004 word"], "ttfts": [0.5], "itls": [[0.25]], "errors": [""]}
    (job.folder / "sglang.jsonl").write_text(json.dumps(output) + "\n")

    assert CLIENTS["sglang"].read(job) == [ObservedRequest(4, None, 500_000_000, [0, 250_000_000])]


def test_guidellm_output_has_no_chunk_times(job: BenchmarkJob) -> None:
    row = {"output": "0000000000000004 word", "time_to_first_token_ms": 20.5}
    output = {"benchmarks": [{"requests": {"successful": [row], "errored": []}}]}
    (job.folder / "guidellm.json").write_text(json.dumps(output))

    assert CLIENTS["guidellm"].read(job) == [ObservedRequest(4, None, 20_500_000)]


JUDGEMENT = Judgement(
    requests=4, lost=0, miscounted=0, chunks=500_000, ttft=Spread(1.0, 2.0, 3.0), chunk=None, absolute=False,
    coalesced_share=None, began_ns=10**9, ended_ns=6 * 10**9, step_p50_ms=20.0,
)  # fmt: skip
RUN = Run(
    client="a", version="1", case=Case("8", 8, 8, 8), repeat=0, judgement=JUDGEMENT, cpu_start_s=7.0, cpu_hot_s=2.0,
    cpu_after_s=1.0, server_share=0.5, late_step_share=0.0, load_average=0.0,
)  # fmt: skip


def test_figures_divide_chunks_by_the_cpu_seconds_of_each_phase() -> None:
    figures = RUN.figures()
    assert figures["chunks_per_s_a_core"] == 250_000
    assert figures["chunks_per_s"] == 100_000
    assert figures["cpu_s_per_million_hot"] == 4.0
    assert figures["cpu_s_per_million_in_all"] == 6.0
    assert figures["client_share"] == 0.4
    assert figures["chunk_error_p99_ms"] is None


def test_the_table_has_one_row_per_client_dashes_for_missing_values_and_failures() -> None:
    assert medians([replace(RUN, cpu_hot_s=used) for used in (1.0, 2.0, 9.0)])["cpu_s_per_million_hot"] == 4.0
    other = replace(RUN, client="b", judgement=replace(JUDGEMENT, miscounted=3, chunk=Spread(0.01, 0.5, 7.25)))

    text = markdown([RUN, RUN, other], ["c, 8 streams failed: no"])

    rows = [line for line in text.splitlines() if line.startswith(("| a", "| b"))]
    assert [row.split(" | ")[1] for row in rows] == ["2", "1"]
    assert "| – | – |" in rows[0]
    assert "3 requests with another number of chunks" in rows[1]
    assert "chunk times since the first chunk" in rows[1]
    assert "| 0.01 | 0.5 | 7.25 |" in rows[1]
    assert text.endswith("- c, 8 streams failed: no\n")


@given(st.lists(st.floats(0, 100), min_size=1), st.integers(-10, 10**4))
def test_cpu_time_is_monotonic_and_within_the_observed_range(observed_s: list[float], time_ns: int) -> None:
    log = CpuLog()
    for index, used_s in enumerate(observed_s):
        log.look(100 * index, used_s)
    assert log.used_s == sorted(log.used_s)
    assert log.used_s[0] <= log.until(time_ns) <= log.used_s[-1]
    assert log.until(time_ns) <= log.until(time_ns + 50)
    between = (log.used_s[0] + log.used_s[min(1, len(log.used_s) - 1)]) / 2
    assert log.until(50) == pytest.approx(between), "it is interpolated"


@pytest.mark.process
def test_the_cpu_time_of_a_process_tree_includes_running_and_ended_children() -> None:
    burn = "import os, time\nwhile time.process_time() < 0.3: pass\n"
    child = f"{burn}print('burnt', flush=True)\ninput()\n"
    parent = (
        f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {burn!r}], check=True)\n"
        f"subprocess.run([sys.executable, '-c', {child!r}], check=True)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", parent], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"burnt\n"
        assert tree_cpu_s(process.pid) >= 0.55
    finally:
        process.communicate(b"\n")
    assert tree_cpu_s(process.pid) == 0.0


@pytest.mark.process
@pytest.mark.parametrize("tls", [False, True])
def test_a_complete_run_of_our_client_loses_no_request(tmp_path: Path, *, tls: bool) -> None:
    case = Case("tiny", streams=4, requests=12, max_tokens=16, pace=Pace(step_ms=2), tls=tls)

    run = run_once(CLIENTS["specbench"], case, 0, tmp_path / "run", cores())

    judgement = run.judgement
    assert (judgement.lost, judgement.miscounted, judgement.absolute) == (0, 0, True)
    assert judgement.requests >= 12  # a client may send extra requests while it ramps up and drains
    assert judgement.chunks >= 12 * 8
    assert json.loads(run.to_json())["case"]["streams"] == 4


MS = 1_000_000


def true_request(number: int = 0, chunks: int = 5, *, complete: bool = True) -> TrueRequest:
    """A recorded request: received at 100 ms, one chunk every 20 ms after that."""
    times = tuple((120 + 20 * chunk) * MS for chunk in range(chunks))
    return TrueRequest(number, f"id-{number}", 100 * MS, times, complete=complete)


def observation(true: TrueRequest, late_ns: int = 0) -> ObservedRequest:
    """A client's observation of the request, with all times late by `late_ns`."""
    chunks = [one + late_ns for one in true.chunk_ns]
    return ObservedRequest(true.number, None, true.ttft_ns + late_ns, chunks, absolute=True)


@given(late_ns=st.integers(-50 * MS, 50 * MS))
def test_a_constant_delay_is_the_error_of_ttft_and_chunks(late_ns: int) -> None:
    true = true_request()

    found = compare_with_truth([true], [observation(true, late_ns)])

    assert found.ttft is not None
    assert found.chunk is not None
    errors_ms = (found.ttft.p50_ms, found.ttft.p99_ms, found.chunk.p50_ms, found.chunk.p99_ms)
    assert errors_ms == pytest.approx([abs(late_ns) / 1e6] * 4)
    assert found.absolute


def test_without_a_common_clock_the_first_chunk_is_the_reference_and_has_no_error() -> None:
    true = true_request(chunks=2)

    found = compare_with_truth([true], [ObservedRequest(0, None, true.ttft_ns + 7 * MS, [0, 25 * MS])])

    assert found.ttft is not None
    assert found.chunk is not None
    assert (found.ttft.p50_ms, found.chunk.p50_ms, found.absolute) == (7.0, 5.0, False)


def test_ttft_percentiles_are_over_requests_and_chunk_percentiles_over_chunks() -> None:
    long, short = true_request(0, chunks=99), true_request(1, chunks=1)

    found = compare_with_truth([long, short], [observation(long), observation(short, 10 * MS)])

    assert found.ttft is not None
    assert found.chunk is not None
    assert (found.ttft.p50_ms, found.chunk.p50_ms) == (5.0, 0.0)
    assert found.chunks == 100


def test_a_request_without_a_number_is_matched_by_its_id() -> None:
    first, second = true_request(0), true_request(1, chunks=3)

    found = compare_with_truth([first, second], [ObservedRequest(None, "id-1", second.ttft_ns)])

    assert (found.requests, found.chunks, found.chunk) == (1, 3, None)


def test_requests_with_another_number_of_chunks_are_counted_but_not_timed() -> None:
    first, second = true_request(0), true_request(1)
    merged = ObservedRequest(1, None, second.ttft_ns, second.chunk_ns[1:], absolute=True)

    found = compare_with_truth([first, second], [observation(first), merged])

    assert (found.requests, found.miscounted) == (2, 1)
    assert found.chunk is not None
    assert found.chunk.p99_ms == 0.0


def test_chunks_with_equal_times_count_as_coalesced() -> None:
    true = true_request(chunks=4)
    last_ns = true.chunk_ns[-1]
    observed = ObservedRequest(0, None, true.ttft_ns, [true.chunk_ns[0], last_ns, last_ns, last_ns], absolute=True)

    assert compare_with_truth([true], [observed]).coalesced_share == 0.5
    assert compare_with_truth([true], [ObservedRequest(0, None, true.ttft_ns)]).coalesced_share is None


def test_unknown_and_incomplete_requests_are_lost() -> None:
    whole, broken = true_request(0), true_request(1, complete=False)

    found = compare_with_truth([whole, broken], [observation(whole), observation(broken), ObservedRequest(9, None, 0)])

    assert (found.requests, found.lost) == (1, 2)


def test_no_matching_requests_is_an_error() -> None:
    with pytest.raises(NothingFound, match="1 requests observed, 1 requests served"):
        compare_with_truth([true_request()], [ObservedRequest(None, "another", 0)])


def test_the_run_ends_with_the_later_of_the_last_sent_and_the_last_observed_chunk() -> None:
    true = true_request()
    last_ns = true.chunk_ns[-1]

    assert compare_with_truth([true], [observation(true, -MS)]).ended_ns == last_ns
    assert compare_with_truth([true], [observation(true, 30 * MS)]).ended_ns == last_ns + 30 * MS
    relative = ObservedRequest(0, None, true.ttft_ns + 5 * MS, [0, 0, 0, 0, 200 * MS])
    assert compare_with_truth([true], [relative]).ended_ns == true.chunk_ns[0] + 205 * MS
    assert compare_with_truth([true], [observation(true)]).began_ns == true.received_ns


@pytest.mark.parametrize(("chunks", "step_ms"), [(5, 20.0), (1, None)])
def test_the_step_time_is_the_median_gap_between_sent_chunks(chunks: int, step_ms: float | None) -> None:
    true = true_request(chunks=chunks)
    assert compare_with_truth([true], [observation(true)]).step_p50_ms == step_ms


UNPACED = Pace(step_ms=0)


@contextmanager
def serving(pace: Pace) -> Iterator[ClockServer]:
    """A server whose event loop runs in a thread until the end of the block."""
    server, ended = ClockServer(pace), threading.Event()

    def loop() -> None:
        while not ended.is_set():
            server.turn(patience_s=0.01)

    thread = threading.Thread(target=loop)
    thread.start()
    try:
        yield server
    finally:
        ended.set()
        thread.join()
        server.close()


def connected(server: ClockServer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2])), timeout=30)


def request(tokens: int, request_id: str = "") -> bytes:
    body = json.dumps({"model": "clock", "messages": [], "stream": True, "max_tokens": tokens}).encode()
    id_header = f"X-Request-Id: {request_id}\r\n" if request_id else ""
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: clock\r\n{id_header}Content-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def read_stream(sock: socket.socket) -> list[tuple[int, bytes]]:
    """All reads up to the end of the chunked body, each with its time."""
    reads: list[tuple[int, bytes]] = []
    while not b"".join(data for _, data in reads[-2:]).endswith(b"0\r\n\r\n"):
        data = sock.recv(65536)
        assert data, "the server closed"
        reads.append((time.monotonic_ns(), data))
    return reads


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, "the condition did not become true"
        time.sleep(0.001)


@pytest.mark.parametrize("pace", [Pace(step_ms=1), UNPACED, Pace(step_ms=0, burst=8)], ids=str)
def test_recorded_send_times_are_after_the_request_and_before_the_chunk_arrives(pace: Pace) -> None:
    with serving(pace) as server, connected(server) as sock:
        sent_ns = time.monotonic_ns()
        sock.sendall(request(40, "mine"))
        reads = read_stream(sock)

    (recorded,) = read_truth(server.truth())
    assert (recorded.complete, recorded.request_id, len(recorded.chunk_ns)) == (True, "mine", length(0, 40))
    assert list(recorded.chunk_ns) == sorted(recorded.chunk_ns)
    clock_difference_ns = 1_000_000  # the kernel's timestamp is converted from the wall clock
    assert sent_ns - clock_difference_ns <= recorded.received_ns <= recorded.chunk_ns[0] + clock_difference_ns
    arrived = b""
    for at_ns, data in reads:
        arrived += data
        sent = arrived.count(b'"content":" word') + arrived.count(b'"content":"0000')
        assert all(one <= at_ns for one in recorded.chunk_ns[:sent])


def test_a_request_of_a_disconnected_client_is_not_complete() -> None:
    with serving(Pace(step_ms=1)) as server:
        with connected(server) as sock:
            sock.sendall(request(100_000))
            wait_until(lambda: bool(server.answers and server.answers[0].chunk_ns))
        wait_until(lambda: not server._streaming)

    (recorded,) = read_truth(server.truth())
    assert not recorded.complete


def test_streams_step_together_and_the_server_catches_up_after_a_late_step() -> None:
    now_ns = 0
    server = ClockServer(Pace(step_ms=1), clock=lambda: now_ns)
    socks = [connected(server) for _ in range(3)]
    for sock in socks:
        sock.sendall(request(20))
    while len(server.answers) < 3:
        server.turn()

    for now_ns in (999_999, 1_000_000, 1_500_000, 9_000_000, 9_000_000, 9_500_000):  # noqa: B007 -- read by the clock
        server.turn()

    sent = [list(recorded.chunk_ns) for recorded in read_truth(server.truth())]
    assert sent == [[1_000_000, 9_000_000, 9_000_000]] * 3
    assert (server.steps, server.late_steps) == (3, 1)
    for sock in socks:
        sock.close()
    server.close()


@given(number=st.integers(0, 10**6), most=st.integers(1, 4096))
def test_an_answer_has_between_half_and_all_of_max_tokens(number: int, most: int) -> None:
    assert most / 2 <= length(number, most) <= most


@given(tokens=st.integers(1, 300))
def test_each_send_contains_one_content_chunk_of_270_to_310_bytes(tokens: int) -> None:
    sent = pieces(tokens, 300)
    assert len(sent) == tokens
    assert all(270 <= len(piece) <= 310 for piece in sent[1:-1])
