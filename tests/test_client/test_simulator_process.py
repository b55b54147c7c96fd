"""The simulator's core and its command: draft and verify, batching, text, configuration, and processes."""

from __future__ import annotations

import http.client
import json
import math
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from random import Random

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from specbench_api.launch import simulator as launch
from specbench_api.launch.simulator import ALIASES, OPTIONS
from specbench_api.spec.drafter import Method
from specbench_client.cli.simulate import simulate
from specbench_client.simulator import (
    FAULTS,
    ConfigError,
    Faults,
    PromptCategories,
    SimulatedDrafter,
    SimulatedStepCost,
    SimulatorConfig,
    follow_leader,
    make_drafter,
    parse_acceptance,
    parse_faults,
    read_categories,
)
from specbench_client.simulator.batch import ContinuousBatch, ScheduledRequest
from specbench_client.simulator.generated_text import VOCABULARY, generate_text, render, split_tokens
from specbench_client.simulator.speculation import DraftVerifyProcess, SimulatedMethod, StepOutcome, count_accepted
from specbench_client.simulator.step_cost import StepLoad
from specbench_testing.ports import free_port

DRAFTERS = st.builds(
    SimulatedDrafter,
    method=st.just(SimulatedMethod.NGRAM),
    num_speculative_tokens=st.integers(1, 8),
    match_probability=st.floats(0, 1),
    variable_length=st.booleans(),
) | st.just(SimulatedDrafter())


def all_steps(output_tokens: int, how: SimulatedDrafter, probability: float, seed: int) -> list[StepOutcome]:
    conditional = (probability,) * how.num_speculative_tokens
    generation = DraftVerifyProcess(output_tokens, how, conditional, Random(seed))
    steps = []
    while not generation.finished:
        steps.append(generation.advance())
    return steps


@given(st.integers(1, 300), DRAFTERS, st.floats(0, 1), st.integers())
def test_every_output_token_comes_from_the_prefill_or_a_step(
    n: int, how: SimulatedDrafter, probability: float, seed: int
) -> None:
    prefill, *steps = all_steps(n, how, probability, seed)
    assert prefill == StepOutcome(tokens=1, prefill=True)
    assert n == 1 + sum(step.delivered_accepted + 1 for step in steps)
    assert all(step.delivered_accepted <= step.accepted <= step.drafted <= how.num_speculative_tokens for step in steps)
    assert all(step.delivered_accepted == step.accepted for step in steps[:-1]), "only the last step is truncated"


def test_accepted_drafts_are_counted_before_truncation() -> None:
    steps = all_steps(7, make_drafter(SimulatedMethod.MTP, 4), 1.0, seed=0)
    assert [(step.tokens, step.accepted) for step in steps] == [(1, 0), (5, 4), (1, 4)]


def test_acceptance_by_position_matches_the_configuration() -> None:
    """Conditional acceptance at each position is within four standard errors of the configured probability."""
    conditional = (0.8, 0.6, 0.4)
    rng = Random(7)
    counts = [count_accepted(rng, 3, conditional) for _ in range(20_000)]
    for position, probability in enumerate(conditional):
        reached = sum(one >= position for one in counts)
        estimate = sum(one > position for one in counts) / reached
        assert abs(estimate - probability) < 4 * math.sqrt(probability * (1 - probability) / reached)


def test_lookup_drafter_has_steps_without_drafts() -> None:
    steps = all_steps(20_000, make_drafter(SimulatedMethod.NGRAM, 4, 0.3), 0.5, seed=3)[1:]
    share = sum(step.drafted > 0 for step in steps) / len(steps)
    assert abs(share - 0.3) < 4 * math.sqrt(0.21 / len(steps))


def test_suffix_drafts_vary_in_length() -> None:
    drafted = {step.drafted for step in all_steps(2_000, make_drafter(SimulatedMethod.SUFFIX, 4), 0.5, seed=3)[1:]}
    assert drafted == {0, 1, 2, 3, 4}


def sequence(tokens: int = 50, prompt: int = 10, depth: int = 0) -> ScheduledRequest:
    how = make_drafter(SimulatedMethod.MTP, depth) if depth else SimulatedDrafter()
    return ScheduledRequest(prompt, prompt, DraftVerifyProcess(tokens, how, (0.5,) * depth, Random(0)))


def batch(
    cost: SimulatedStepCost | None = None, faults: Faults | None = None, max_num_seqs: int = 256
) -> ContinuousBatch:
    return ContinuousBatch(max_num_seqs, cost or SimulatedStepCost(), (faults or Faults()).slowdown)


def test_step_cost_is_the_documented_sum() -> None:
    cost = SimulatedStepCost(1, 10, 100, 1000, 10_000)
    load = StepLoad(batch_tokens=2, kv_tokens=3, draft_depth=4, prefill_tokens=5)
    assert cost.milliseconds(load) == 1 + 20 + 300 + 4000 + 50_000


def test_waiting_requests_are_admitted_in_order_when_others_finish() -> None:
    """At most max_num_seqs requests run, and the queue is first in, first out."""
    several = batch(max_num_seqs=2)
    one, two, three, four = sequence(1), sequence(2), sequence(2), sequence(2)
    for each in (one, two, three, four):
        several.add(each)
    assert several.step().admitted == (one, two)
    several.retire()
    assert several.step().admitted == (three,)
    several.retire()
    assert several.step().admitted == (four,)
    several.retire()
    several.step()
    several.retire()
    assert several.idle


def test_dropped_request_is_not_served() -> None:
    several = batch(max_num_seqs=1)
    one, two = sequence(), sequence()
    several.add(one)
    several.add(two)
    several.step()
    for each in (one, two, two):
        several.drop(each)
    assert several.idle


def test_prefill_costs_only_uncached_tokens() -> None:
    several = batch(SimulatedStepCost(0, 1, 0, 0, 1))
    several.add(ScheduledRequest(100, 10, DraftVerifyProcess(5, SimulatedDrafter(), (), Random(0))))
    first = several.step()
    assert first.load == StepLoad(batch_tokens=0, kv_tokens=0, draft_depth=0, prefill_tokens=10)
    assert several.step().load == StepLoad(batch_tokens=1, kv_tokens=101, draft_depth=0, prefill_tokens=0)


def test_throttling_slows_later_steps() -> None:
    several = batch(SimulatedStepCost(1000, 0, 0, 0, 0), parse_faults(("throttle=0.5",)))
    several.add(sequence())
    durations = [several.step().duration_ms for _ in range(20)]
    assert durations[:2] == [1000, 1500]
    assert durations[-1] == 10_000


answer_to_question = partial(generate_text, "simulated", "What is a step?", seed=0, mean_tokens=20)


@given(st.text(), st.integers(0, 5))
def test_text_depends_only_on_prompt_and_seed(prompt: str, seed: int) -> None:
    answer, again = (generate_text("simulated", prompt, 400, seed=seed, mean_tokens=20) for _ in range(2))
    assert answer == again
    assert render(answer.words, first=True).split() == list(answer.words)


def test_prompt_seed_model_and_sample_change_the_text() -> None:
    variants = [
        generate_text(model, prompt, 400, ignore_eos=True, sample=sample, seed=seed, mean_tokens=20)
        for model, prompt, sample, seed in (
            ("a", "p", None, 0),
            ("b", "p", None, 0),
            ("a", "q", None, 0),
            ("a", "p", "7", 0),
            ("a", "p", None, 1),
        )
    ]
    assert len({answer.words for answer in variants}) == len(variants)


def test_answer_ends_naturally_or_at_its_limit() -> None:
    natural = answer_to_question(400)
    assert natural.finish_reason == "stop"
    count = len(natural.words)
    cut = answer_to_question(count - 1)
    assert (cut.words, cut.finish_reason) == (natural.words[:-1], "length")
    longer = answer_to_question(400, ignore_eos=True)
    assert (longer.words[:count], len(longer.words), longer.finish_reason) == (natural.words, 400, "length")
    at_least = answer_to_question(400, min_tokens=300)
    assert len(at_least.words) == 300


def test_natural_lengths_have_the_configured_mean() -> None:
    lengths = [len(generate_text("m", str(i), 10_000, seed=0, mean_tokens=60).words) for i in range(500)]
    assert abs(sum(lengths) / 500 - 60) < 4 * 30 / math.sqrt(500)


def test_each_word_is_one_token() -> None:
    assert len(set(VOCABULARY)) == len(VOCABULARY)
    assert (split_tokens("one two  three\nfour"), split_tokens("")) == (("one", "two", "three", "four"), ("",))


def test_acceptance_is_parsed_by_category_and_position() -> None:
    acceptance = parse_acceptance("default=0.7, coding=0.8/0.6")
    assert acceptance.positions("coding", 4) == (0.8, 0.6, 0.6, 0.6)
    assert acceptance.positions("poetry", 2) == (0.7, 0.7)
    assert parse_acceptance("0.8/0.5").positions("default", 2) == (0.8, 0.5)


@pytest.mark.parametrize("text", ["", "1.5", "x", "coding=0.5", "0.5,0.6", "default=0.5,=0.3", "0.5/"])
def test_impossible_acceptance_is_rejected(text: str) -> None:
    with pytest.raises(ConfigError, match="acceptance"):
        parse_acceptance(text)


def test_category_is_found_by_prompt_turns_or_messages(tmp_path: Path) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text(
        '{"id": 1, "category": "coding", "prompt": "sort"}\n\n'
        '{"question_id": 2, "category": "chat", "turns": ["hello", "and then"]}\n'
        '{"id": 3, "category": "math", "messages": [{"role": "system", "content": "s"}, '
        '{"role": "user", "content": "1+1"}]}\n'
        '{"id": 4, "prompt": "bare"}\n'
    )
    known = read_categories(file)
    found = [known.of((text,)) for text in ("sort", "hello", "and then", "1+1", "bare", "s", "?")]
    assert found == ["coding", "chat", "chat", "math", "default", "default", "default"]
    assert known.of(("sort", "hello")) == "chat"
    assert PromptCategories().of(()) == "default"


@pytest.mark.parametrize("line", ["{", "[]", '{"id": 1}'])
def test_bad_line_of_a_prompt_file_is_named(tmp_path: Path, line: str) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text(f'{{"prompt": "x"}}\n{line}\n')
    with pytest.raises(ConfigError, match="line 2"):
        read_categories(file)


@settings(max_examples=20)
@given(st.integers(1, 12), st.integers(0, 3))
def test_batch_serves_every_request_to_its_end(streams: int, depth: int) -> None:
    several = batch(max_num_seqs=3)
    requests = [sequence(tokens=5 + index, depth=depth) for index in range(streams)]
    for each in requests:
        several.add(each)
    while not several.idle:
        several.step()
        several.retire()
    assert [each.generation.produced for each in requests] == [5 + index for index in range(streams)]


IMPOSSIBLE: dict[str, Callable[[], object]] = {
    "n-gram without drafts": partial(make_drafter, SimulatedMethod.NGRAM, 0),
    "drafts without a drafter": partial(make_drafter, SimulatedMethod.NONE, 2),
    "too many drafts": partial(make_drafter, SimulatedMethod.MTP, 65),
    "probability above 1": partial(make_drafter, SimulatedMethod.NGRAM, 2, 1.5),
    **{
        text: partial(parse_faults, (text,))
        for text in ("nonsense", "truncate=2", "miscount=x", "never-ready=3", "stall=-1")
    },
    "fault given twice": partial(parse_faults, ("stall", "stall=4")),
    "no sequences": partial(SimulatorConfig, max_num_seqs=0),
    "negative time": partial(SimulatorConfig, time_scale=-1.0),
    "no output": partial(SimulatorConfig, output_mean_tokens=0.0),
    "negative cost": partial(SimulatedStepCost, per_kv_ms=-1),
}


@pytest.mark.parametrize("make", IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_impossible_settings_are_rejected_at_the_start(make: Callable[[], object]) -> None:
    with pytest.raises(ConfigError):
        make()


BODY = json.dumps({"temperature": 0, "max_tokens": 8, "messages": [{"role": "user", "content": "Hello"}]})
COMMAND = [sys.executable, "-c", "from specbench_client.cli.simulate import simulate; simulate()"]


@pytest.mark.process
def test_spec_accepts_exactly_the_simulate_commands_options() -> None:
    taken = {spelling for option in simulate.params for spelling in option.opts}
    assert taken == {*OPTIONS, *ALIASES}
    assert tuple(FAULTS) == launch.FAULTS


@contextmanager
def running_simulator(
    folder: Path, *arguments: str, host: str = "127.0.0.1", url: str = "http://127.0.0.1:"
) -> Iterator[tuple[subprocess.Popen[str], http.client.HTTPConnection]]:
    """Start the command on a free port; it is ready when it prints its address."""
    files = ["--port-file", str(folder / "port"), "--truth", str(folder / "truth.jsonl")]
    command = [*COMMAND, "--host", host, "--port", "0", "--time-scale", "0", *files, *arguments]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            assert f"listening on {url}" in process.stderr.readline()
            connection = http.client.HTTPConnection(host, int((folder / "port").read_text()), timeout=120)
            yield process, connection
            connection.close()
        finally:
            process.kill()


def post_chat(connection: http.client.HTTPConnection) -> int:
    connection.request("POST", "/v1/chat/completions", BODY)
    response = connection.getresponse()
    response.read()
    return response.status


@pytest.mark.process
def test_simulator_serves_until_sigterm(tmp_path: Path) -> None:
    with running_simulator(tmp_path, "--drafter", "ngram", "-k", "3") as (process, connection):
        assert post_chat(connection) == 200
        assert json.loads((tmp_path / "truth.jsonl").read_text())["model"] == "simulated"
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=120) == 0


@pytest.mark.process
def test_simulator_serves_ipv6(tmp_path: Path) -> None:
    with running_simulator(tmp_path, host="::", url="http://[::]:") as (_, connection):
        assert post_chat(connection) == 200


@pytest.mark.process
def test_sigterm_does_not_wait_for_a_stalled_stream(tmp_path: Path) -> None:
    with running_simulator(tmp_path, "--fault", "stall=0") as (process, connection):
        connection.request("POST", "/v1/chat/completions", BODY.replace("{", '{"stream": true, ', 1))
        assert connection.getresponse().status == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=120) == 0


@pytest.mark.process
def test_crash_exits_with_1_and_keeps_the_truth_file(tmp_path: Path) -> None:
    with running_simulator(tmp_path, "--fault", "crash-after=1") as (process, connection):
        assert post_chat(connection) == 200
        assert process.wait(timeout=120) == 1
    assert len((tmp_path / "truth.jsonl").read_text().splitlines()) == 1


@pytest.mark.process
def test_oom_is_a_sigkill(tmp_path: Path) -> None:
    with running_simulator(tmp_path, "--fault", "oom") as (process, connection):
        with pytest.raises(ConnectionError):
            post_chat(connection)
        assert process.wait(timeout=120) == -signal.SIGKILL


@pytest.mark.process
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


@pytest.mark.process
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


@pytest.mark.process
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


@pytest.mark.process
@pytest.mark.parametrize("address", ["", "127.0.0.1", "http://127.0.0.1", "http://x:port", "http://:80"])
def test_invalid_leader_address_is_rejected_with_an_example(address: str) -> None:
    with pytest.raises(ConfigError, match=r"give one such as http://127\.0\.0\.1:8000"):
        follow_leader(address, lambda _line: None)


@pytest.mark.process
def test_simulated_methods_are_exactly_the_methods_of_the_api() -> None:
    assert {str(method) for method in SimulatedMethod} == {str(method) for method in Method}
