"""`specbench simulate` as a process: its address, its files, its exit codes, and followers of a multi-node engine."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from specbench_api.launch import simulator as launch
from specbench_api.launch.simulator import ALIASES, OPTIONS
from specbench_api.spec.drafter import Method
from specbench_client.cli.simulate import simulate
from specbench_client.simulator import FAULTS, ConfigError, SimulatedMethod, follow_leader
from specbench_testing.ports import free_port

pytestmark = pytest.mark.process

BODY = json.dumps({"temperature": 0, "max_tokens": 8, "messages": [{"role": "user", "content": "Hello"}]})
COMMAND = [sys.executable, "-c", "from specbench_client.cli.simulate import simulate; simulate()"]


def test_spec_accepts_exactly_the_simulate_commands_options() -> None:
    taken = {spelling for option in simulate.params for spelling in option.opts}
    assert taken == {*OPTIONS, *ALIASES}
    assert tuple(FAULTS) == launch.FAULTS


@contextmanager
def running_simulator(
    folder: Path, *arguments: str
) -> Iterator[tuple[subprocess.Popen[str], http.client.HTTPConnection]]:
    """Start the command on a free port; it is ready when it prints its address."""
    files = ["--port-file", str(folder / "port"), "--truth", str(folder / "truth.jsonl")]
    command = [*COMMAND, "--port", "0", "--time-scale", "0", *files, *arguments]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            assert "listening on http://127.0.0.1:" in process.stderr.readline()
            connection = http.client.HTTPConnection("127.0.0.1", int((folder / "port").read_text()), timeout=120)
            yield process, connection
            connection.close()
        finally:
            process.kill()


def post_chat(connection: http.client.HTTPConnection) -> int:
    connection.request("POST", "/v1/chat/completions", BODY)
    response = connection.getresponse()
    response.read()
    return response.status


def test_simulator_serves_until_sigterm(tmp_path: Path) -> None:
    with running_simulator(tmp_path, "--drafter", "ngram", "-k", "3") as (process, connection):
        assert post_chat(connection) == 200
        assert json.loads((tmp_path / "truth.jsonl").read_text())["model"] == "simulated"
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=120) == 0


def test_sigterm_does_not_wait_for_a_stalled_stream(tmp_path: Path) -> None:
    with running_simulator(tmp_path, "--fault", "stall=0") as (process, connection):
        connection.request("POST", "/v1/chat/completions", BODY.replace("{", '{"stream": true, ', 1))
        assert connection.getresponse().status == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=120) == 0


def test_crash_exits_with_1_and_keeps_the_truth_file(tmp_path: Path) -> None:
    with running_simulator(tmp_path, "--fault", "crash-after=1") as (process, connection):
        assert post_chat(connection) == 200
        assert process.wait(timeout=120) == 1
    assert len((tmp_path / "truth.jsonl").read_text().splitlines()) == 1


def test_oom_is_a_sigkill(tmp_path: Path) -> None:
    with running_simulator(tmp_path, "--fault", "oom") as (process, connection):
        with pytest.raises(ConnectionError):
            post_chat(connection)
        assert process.wait(timeout=120) == -signal.SIGKILL


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["--dialect", "tgi"], "unknown dialect"),
        (["--drafter", "eagle3", "-k", "65"], "give 1 to"),
        (["-k", "3"], "proposes nothing"),
        (["--fault", "nonsense"], "unknown fault 'nonsense': give one of merge-chunks, "),
        (["--fault", "loop=1"], "did you mean loops?"),
        (["--acceptance", "2"], "between 0 and 1"),
        (["--prompts", "/nowhere.jsonl"], "nowhere"),
        (["--truth", "/nowhere/truth.jsonl"], "nowhere"),
        (["--host", "203.0.113.1", "--port", "0"], "cannot listen"),
    ],
)
def test_invalid_option_exits_with_2_and_a_message(arguments: list[str], word: str) -> None:
    result = CliRunner().invoke(simulate, arguments)
    assert result.exit_code == 2
    assert word in result.stderr


def test_help_has_an_example_and_lists_every_fault() -> None:
    text = CliRunner().invoke(simulate, ["--help"]).output
    assert "specbench simulate --port 8000" in text
    assert [fault for fault in FAULTS if f"  {fault}" not in text] == []


@contextmanager
def listening_leader(port: int) -> Iterator[None]:
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind(("127.0.0.1", port))
        server.listen()
        yield


def test_follower_waits_joins_and_ends_with_its_leader() -> None:
    port = free_port()
    messages: list[str] = []
    condition = threading.Condition()

    def record_message(line: str) -> None:
        with condition:
            messages.append(line.partition(" the ")[0])
            condition.notify_all()

    thread = threading.Thread(target=follow_leader, args=(f"http://127.0.0.1:{port}", record_message, 0.01))
    thread.start()
    with condition:
        assert condition.wait_for(lambda: messages == ["waiting for"], 60)
    with listening_leader(port), condition:
        assert condition.wait_for(lambda: messages == ["waiting for", "joined"], 60)
    thread.join(60)
    assert not thread.is_alive()
    assert len(messages) == 3


@pytest.mark.parametrize("address", ["", "127.0.0.1", "http://127.0.0.1", "http://x:port", "http://:80"])
def test_invalid_leader_address_is_rejected_with_an_example(address: str) -> None:
    with pytest.raises(ConfigError, match=r"give one such as http://127\.0\.0\.1:8000"):
        follow_leader(address, lambda _line: None)


def test_simulated_methods_are_exactly_the_methods_of_the_api() -> None:
    assert {str(method) for method in SimulatedMethod} == {str(method) for method in Method}
