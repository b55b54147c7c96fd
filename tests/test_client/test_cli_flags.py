"""Flags of `specbench measure`: the fields they set, headers, and messages with the flag, its value, and a remedy."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from specbench_api.outcome.exit_codes import Exit
from specbench_api.spec.field_paths import found, steps_of
from specbench_api.spec.secret_refs import API_KEY_VARIABLE
from specbench_client.cli import cli, exit_code
from specbench_client.cli.measure import (
    FLAGS_ELSEWHERE,
    Measurement,
    base_url,
    measure,
    planned_measurement,
    request_headers,
)
from specbench_client.cli.options import EXAMPLES
from specbench_client.cli.value_types import Choice
from specbench_client.errors import BadInput
from specbench_client.local.llama_server import llama_server
from specbench_client.measure_flags import FLAGS, SpecFlag, with_flag_names
from specbench_client.transport.exchange import RESERVED_HEADERS, HttpRequest
from specbench_client.trust.checks.comparison import not_interleaved
from specbench_client.trust.registry import CHECK_BY_NAME

Rejected = Callable[..., str]

ENGINE = "http://127.0.0.1:1"


@pytest.fixture
def rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Rejected:
    """Run `measure` with invalid flags and return its last error line; nothing is written or requested."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "prompts.jsonl").write_text('{"id": "a", "prompt": "x"}\n{"id": "b", "prompt": "y"}\n')

    def run_rejected(*flags: str, files: dict[str, str] | None = None) -> str:
        for name, text in (files or {}).items():
            (tmp_path / name).write_text(text)
        files_before = set(tmp_path.iterdir())
        given = {"--endpoint": ENGINE, "--model": "m", "--dialect": "openai", "--dataset": "prompts.jsonl"}
        fixed = [word for flag, value in given.items() if flag not in flags for word in (flag, value)]
        code = exit_code(["measure", *fixed, *flags])
        printed = capsys.readouterr()
        assert code == 2, printed.err
        assert printed.out == ""
        assert set(tmp_path.iterdir()) == files_before
        assert "spec." not in printed.err
        assert "\nresults: " not in f"\n{printed.err}"
        return printed.err.splitlines()[-1]

    return run_rejected


NUMBERS = [
    ("--concurrency", "0", "from 1 to 4096"),
    ("--concurrency", "4,5000", "from 1 to 4096"),
    ("--concurrency", "1.5", "whole number"),
    ("--concurrency", "nan", "from 1 to 4096"),
    ("--concurrency", "", "from 1 to 4096"),
    ("--rate", "0", "above 0"),
    ("--rate", "-2", "above 0"),
    ("--rate", "nan", "above 0"),
    ("--rate", "inf", "up to 100000"),
    ("--burstiness", "nan", "from 0.01 to 1000"),
    ("--requests", "0", "from 1"),
    ("--duration", "-1", "from 1"),
    ("--max-tokens", "0", "from 1"),
    ("--temperature", "inf", "from 0 to 2"),
    ("--temperature", "nan", "from 0 to 2"),
    ("--top-p", "0", "above 0 and up to 1"),
    ("--seed", "-1", "from 0"),
    ("--warmup", "-1", "from 0"),
    ("--repeats", "99", "from 1 to 32"),
    ("--system-prompt-tokens", "0", "from 1"),
]


@pytest.mark.parametrize(("flag", "value", "instead"), NUMBERS)
def test_number_out_of_bounds_is_reported_with_its_flag_and_the_bounds(
    flag: str, value: str, instead: str, rejected: Rejected
) -> None:
    line = rejected(flag, value)
    assert flag in line
    assert repr(value.rpartition(",")[2]) in line
    assert instead in line


CONTRADICTIONS = [
    (("-c", "1", "-r", "1"), ("--concurrency", "--rate")),
    ((), ("--concurrency", "--rate", "--arrival trace")),
    (("-c", "1", "--arrival", "Poisson"), ("--concurrency", "--rate", "only an open loop has --arrival")),
    (("-r", "1", "--burstiness", "2"), ("--burstiness needs --arrival gamma",)),
    (("--arrival", "Trace"), ("--arrival trace needs --trace",)),
    (("-r", "1", "--trace", "t.csv"), ("--trace needs --arrival trace",)),
    (("-c", "1", "-n", "5", "--duration", "5"), ("--requests", "--duration")),
    (("-c", "2,1,2"), ("--concurrency", "2 is given twice", "--repeats")),
    (("-c", "1", "-c", "1"), ("--concurrency", "1 is given twice")),
    (("-c", "1", "--name", "A_b"), ("--name: ", "'A_b'", "lower-case")),
    (("-c", "1", "--name", ""), ("--name: ",)),
    (("-c", "1", "--model", ""), ("--model",)),
    (("-c", "1", "--extra-body", '{"max_tokens": 3}'), ("--extra-body", "set --max-tokens")),
    (("-c", "1", "--extra-body", '{"model": "x"}'), ("--extra-body", "it is --model")),
    (("-c", "1", "--answers", "[]"), ("--answers", "is not a JSON object", "expected")),
    (("-c", "1", "--answers", "{}"), ("--answers jsonSchema, --answers tools and --answers expected",)),
    (
        ("-c", "1", "--answers", '{"jsonSchema": {"type": 1}}'),
        ("--answers jsonSchema: ", "not a valid JSON Schema: type"),
    ),
    (("-c", "1", "--header", "x"), ("--header 'x…'", "NAME: VALUE")),
    (("-c", "1", "--until-sure"), ("--until-sure", "--baseline")),
    (("-c", "1", "--dataset", "gone.jsonl"), ("gone.jsonl",)),
    (("--rate", "0.001", "--duration", "1"), ("--duration", "--rate")),
    (("-c", "1", "--baseline", ENGINE), ("the same server", "another")),
    (("-c", "1", "--endpoint", "http://LOCALHOST:7/v1", "--baseline", "http://127.0.0.1:7"), ("the same server",)),
    (("-c", "1", "--endpoint", "http://[0:0::1]:7", "--baseline", "http://localhost:7"), ("the same server",)),
    (
        ("-c", "1", "--endpoint", "http://[::ffff:127.0.0.1]:7", "--baseline", "http://localhost:7"),
        ("the same server",),
    ),
    (("-c", "1", "--endpoint", "http://[::ffff:a00:1]:7", "--baseline", "http://10.0.0.1:7"), ("the same server",)),
    (("-c", "1", "--endpoint", "http://[FD00:0::1]:7", "--baseline", "http://[fd00::1]:7"), ("the same server",)),
    (("-c", "1", "--baseline", "host:1"), ("--baseline 'host:1'", "http://")),
    (("-c", "1", "--endpoint", "http://a:1", "--endpoint", "http://b:1"), ("several --endpoint", "--baseline")),
    (("-c", "1", "--endpoint", "none=http://a:1", "--baseline", "http://b:1"), ("none", "NAME=URL")),
    (
        ("-c", "1", "--baseline", "http://b:1", "--until-sure", "--repeats", "3"),
        ("--repeats 3", "--until-sure", "6 or more"),
    ),
]


@pytest.mark.parametrize(("flags", "words"), CONTRADICTIONS, ids=" ".join)
def test_invalid_and_conflicting_flags_are_named(
    flags: tuple[str, ...], words: tuple[str, ...], rejected: Rejected
) -> None:
    line = rejected(*flags)
    assert [word for word in words if word not in line] == []


ENDPOINTS = [
    ("127.0.0.1:8000", "http:// or https://"),
    ("", "http:// or https://"),
    ("ftp://x", "http:// or https://"),
    ("http://", "no host"),
    ("http://a b", "no host"),
    ("http://[::1", "is not a URL"),
    ("http://::1:8000", "an IPv6 address without brackets"),
    ("http://fd00::1:8000/v1", "an IPv6 address without brackets"),
    ("http://FD00:0:0:0:0:0:0:1", "an IPv6 address without brackets"),
    ("http://fd00:0:0:0:0:0:0:1:8000", "an IPv6 address without brackets"),
    ("http://::ffff:1.2.3.4:80", "an IPv6 address without brackets"),
    ("http://a:b:c", "from 1 to 65535"),
    ("http://[::1]8000", "from 1 to 65535"),
    ("http://[::1]x/v1", "from 1 to 65535"),
    ("http://host:80:80", "from 1 to 65535"),
    ("http://127.0.0.1:99999", "from 1 to 65535"),
    ("http://127.0.0.1:0", "from 1 to 65535"),
    ("http://127.0.0.1:abc", "from 1 to 65535"),
]


@pytest.mark.parametrize(("endpoint", "reason"), ENDPOINTS)
def test_invalid_endpoint_url_is_explained(endpoint: str, reason: str, rejected: Rejected) -> None:
    line = rejected("-c", "1", "--endpoint", endpoint)
    assert f"--endpoint {endpoint!r}" in line
    assert reason in line
    assert "^" not in line


def test_endpoint_is_accepted_with_and_without_v1() -> None:
    for given in ("http://h:1", "http://h:1/", "http://h:1/v1", "http://h:1/v1/"):
        assert base_url("--endpoint", given) == "http://h:1"
    assert base_url("--endpoint", "https://[::1]:443/proxy") == "https://[::1]:443/proxy"


@pytest.mark.parametrize(("workers", "rejected_count"), [(500, True), (5, True), (4, False), (None, False)])
def test_more_than_two_workers_per_core_are_rejected(
    workers: int | None, *, rejected_count: bool, rejected: Rejected, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("specbench_client.cli.measure.usable_cores", lambda: 2)
    options = () if workers is None else ("--workers", str(workers))
    line = rejected("-c", "1", "--endpoint", "x", *options)
    assert (f"--workers {workers} is too many for the 2 usable cores" in line) == rejected_count
    assert ("give at most 4" in line) == rejected_count
    assert ("--endpoint 'x'" in line) != rejected_count, "otherwise the endpoint is the next error"


TRACES = {
    "empty.jsonl": ("", "contains no rows"),
    "broken.jsonl": ("x\n", "line 1: not JSON"),
    "other.jsonl": ('{"at": 1}\n', "rename the column of the timestamps to 'timestamp'"),
    "other.csv": ("at\n1\n", "rename the column of the timestamps to 'timestamp'"),
    "words.csv": ("timestamp\nsoon\n", "timestamp is 'soon'"),
    "moment.csv": ("timestamp\n1\n", "lower --requests"),
    "gone.csv": (None, "gone.csv"),
}


@pytest.mark.parametrize("name", TRACES)
def test_unusable_trace_is_rejected_before_the_run_starts(name: str, rejected: Rejected) -> None:
    content, why = TRACES[name]
    line = rejected("--arrival", "Trace", "--trace", name, files={} if content is None else {name: content})
    assert why in line


GIVEN: dict[str, tuple[str, Any]] = {
    "--model": ("m2", "m2"),
    "--dialect": ("sglang", "sglang"),
    "--dataset": ("jsonl:p.jsonl", "p.jsonl"),
    "--prompt-column": ("text", "text"),
    "--allow-missing": ("", True),
    "--system-prompt-tokens": ("9", 9),
    "--concurrency": ("8,1", [8, 1]),
    "--rate": ("2.5", [2.5]),
    "--arrival": ("gamma", "Gamma"),
    "--burstiness": ("0.5", 0.5),
    "--max-in-flight": ("7", 7),
    "--trace": ("t.csv", "t.csv"),
    "--requests": ("0012", 12),
    "--requests-per-stream": ("4", 4),
    "--duration": ("60", 60),
    "--warmup": ("0", 0),
    "--repeats": ("2", 2),
    "--max-tokens": ("64", 64),
    "--temperature": ("0.5", 0.5),
    "--top-p": ("0.9", 0.9),
    "--seed": ("3", 3),
    "--ignore-eos": ("", True),
    "--no-stream": ("", False),
    "--prompt-cache": ("as-served", "AsServed"),
    "--tokenizer": ("folder", "folder"),
    "--extra-body": ('{"top_k": 20}', {"top_k": 20}),
    "--answers": ('{"jsonSchema": {}}', {"jsonSchema": {}}),
    "--slo-ttft-ms": ("500", 500),
    "--slo-tpot-ms": ("35", 35),
    "--slo-e2e-ms": ("9000", 9000),
}
WITH = {"--burstiness": ["-r", "1", "--arrival", "Gamma"], "--trace": ["--arrival", "Trace"], "--rate": []}
"""The load that a flag needs; others: an open loop for arrivals, else a closed one."""


@pytest.mark.parametrize("flag", FLAGS, ids=lambda flag: flag.name)
def test_every_flag_sets_its_field_and_names_it_in_messages(flag: SpecFlag) -> None:
    text, value = GIVEN[flag.name]
    load = ["-r", "1"] if flag.path.startswith("load.arrival") else ["-c", "1"]
    load = WITH.get(flag.name, [] if flag.name == "--concurrency" else load)
    words = ["--endpoint", ENGINE, "--dataset", "jsonl:p.jsonl", *load, flag.name, *([text] if text else [])]
    run = Measurement(measure.make_context("measure", words).params, ({"name": "endpoint", "url": ENGINE},)).run
    assert found(run.spec.to_dict(), steps_of(flag.path)) == value
    assert with_flag_names(f"spec.{flag.path}: is wrong") == f"{flag.name}: is wrong"


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("metadata.name", "--name"),
        ("spec.workloads[0].answers.expected: is wrong", "--answers expected: is wrong"),
        ("spec.load.arrival: load.arrival.uri needs it", "--trace needs it"),
        ("set promptCache: Disabled", "set --prompt-cache disabled"),
        ("set promptCache: AsServed to measure", "set --prompt-cache as-served to measure"),
        ("with load.arrival.process Trace", "with --arrival trace"),
        ("answers and load", "answers and load"),
    ],
)
def test_other_mentions_of_fields_are_named_as_flags_too(text: str, named: str) -> None:
    assert with_flag_names(text) == named


def test_fields_are_replaced_only_where_they_are_whole_words() -> None:
    text = "download.rate, my/load.rate and load.rates are no fields, but workloads[0].output.maxTokens is"
    assert with_flag_names(text) == "download.rate, my/load.rate and load.rates are no fields, but --max-tokens is"


@pytest.mark.parametrize("check", sorted(CHECK_BY_NAME))
def test_remedies_for_users_of_measure_name_flags_instead_of_fields(check: str) -> None:
    if check == not_interleaved.name:  # `measure` interleaves always
        return
    fields = r"\b(?:load|output|sampling|chatTemplate|dataset)\.[a-z]\w*|engine\.dialect|`load`"
    assert re.findall(fields, with_flag_names(CHECK_BY_NAME[check].remedy)) == []


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        *FLAGS_ELSEWHERE.items(),
        ("--max-concurrency", "--concurrency"),
        ("--dataset-name", "--dataset"),
        ("--dataset-path", "--dataset"),
    ],
)
def test_flag_of_another_load_generator_is_answered_with_ours(theirs: str, ours: str, rejected: Rejected) -> None:
    assert ours in {flag for option in measure.params for flag in option.opts}
    assert f"'{ours}'" in rejected(theirs, "4")


@pytest.mark.parametrize(
    ("endpoint", "words"),
    [
        ("http://me:secret@host:80", "--header"),
        ("http://h/v1?api_key=secret", "--endpoint 'http://h/v1?…' has a query or fragment"),
        ("http://h/v1#api_key=secret", "--endpoint 'http://h/v1#…' has a query or fragment"),
    ],
)
def test_secret_in_an_endpoint_is_rejected_and_not_printed(endpoint: str, words: str, rejected: Rejected) -> None:
    """Messages end in logs of CI."""
    line = rejected("-c", "1", "--endpoint", endpoint)
    assert words in line
    assert "secret" not in line


@pytest.fixture(autouse=True)
def no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(API_KEY_VARIABLE, raising=False)


def test_headers_are_sent_as_written() -> None:
    assert request_headers(["X-Tenant: a: b", "x-empty:"]) == {"X-Tenant": "a: b", "x-empty": ""}


@pytest.mark.parametrize("name", ["Content-Length", "TE", "Transfer-Encoding", "CONNECTION", "X-Request-Id"])
def test_reserved_header_is_rejected_with_the_reason(name: str) -> None:
    with pytest.raises(
        BadInput, match=f"the header {name} is set by specbench itself: {RESERVED_HEADERS[name.lower()]}"
    ):
        request_headers(["X-Tenant: a", f"{name}: 5"])


def test_every_other_header_that_specbench_sends_is_reserved() -> None:
    head = HttpRequest("http://h/", b"").message.partition(b"\r\n\r\n")[0].decode()
    sent = {line.partition(":")[0].lower() for line in head.split("\r\n")[1:]}
    assert sent - RESERVED_HEADERS.keys() == {"accept", "host", "user-agent"}


@pytest.mark.parametrize("text", ["no colon", "a b: c", ": x", "X: a\r\nHost: b", "X: a\rb"])
def test_malformed_header_is_rejected(text: str) -> None:
    with pytest.raises(BadInput, match="is not 'NAME: VALUE'"):
        request_headers([text])


def test_repeated_header_is_rejected() -> None:
    with pytest.raises(BadInput, match="x-tenant is given twice"):
        request_headers(["X-Tenant: a", "x-tenant: b"])


def test_given_authorization_header_replaces_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(API_KEY_VARIABLE, "secret")
    assert request_headers([]) == {"Authorization": "Bearer secret"}
    assert request_headers(["authorization: Basic x"]) == {"authorization": "Basic x"}


def test_key_comes_from_the_named_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(API_KEY_VARIABLE, "other")
    monkeypatch.setenv("MY_KEY", "secret")
    assert request_headers([], "MY_KEY") == {"Authorization": "Bearer secret"}


@pytest.mark.parametrize("value", [None, ""])
def test_named_variable_without_a_key_is_rejected(monkeypatch: pytest.MonkeyPatch, value: str | None) -> None:
    monkeypatch.setenv("MY_KEY", "") if value == "" else monkeypatch.delenv("MY_KEY", raising=False)
    with pytest.raises(BadInput, match="--api-key-env MY_KEY: this environment variable is not set"):
        request_headers([], "MY_KEY")


@pytest.mark.parametrize(
    "command",
    [
        ("validate",),
        ("validate", "examples/local-simulator.yaml", "--fence"),
        ("analyze", "ngram", "examples/prompts.jsonl", "--step-cost"),
    ],
    ids=["run", "fence", "cost model"],
)
@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"a: [", "line 1, column 5"),
        (b"- 1", "expected one mapping of names to values, found list ("),
        (b"\xff\xfea", "byte 0 is not UTF-8 (save it as UTF-8"),
    ],
    ids=["syntax", "list", "encoding"],
)
def test_every_yaml_file_has_the_same_errors(
    command: tuple[str, ...], data: bytes, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "file.yaml"
    file.write_bytes(data)
    assert exit_code([*command, str(file)]) == Exit.BAD_INPUT
    error = capsys.readouterr().err
    assert str(file) in error
    assert message in error


def commands(group: click.Group) -> Iterator[click.Command]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield from commands(command) if isinstance(command, click.Group) else [command]


def test_every_choice_takes_any_case_with_or_without_hyphens() -> None:
    kinds = {
        each.type
        for command in commands(cli)
        for each in command.params
        if isinstance(each.type, click.Choice) and command is not llama_server
    }
    assert len(kinds) > 10
    for kind in kinds:
        assert isinstance(kind, Choice)
        for value in kind.choices:
            hyphenated = re.sub("(?<=[a-z])(?=[A-Z])", "-", value)
            given = (value, value.upper(), value.lower(), hyphenated.upper())
            assert [kind.convert(each, None, None) for each in given] == [value] * len(given)


@pytest.mark.parametrize(
    ("flags", "meant"),
    [
        (["-c", "8", "16"], "8,16"),
        (["--concurrency", "1", "8", "16", "-n", "4"], "1,8,16"),
        (["--rate", "0.5", "2"], "0.5,2"),
        (["-c", "1,8", "16"], "1,8,16"),
        (["-c", "8", "--percentiles", "50", "99"], "50,99"),
    ],
)
def test_values_separated_by_spaces_are_answered_with_commas(flags: list[str], meant: str, rejected: Rejected) -> None:
    assert rejected(*flags).endswith(f": {meant}")


def test_a_mistyped_dataset_is_answered_with_a_similar_file(rejected: Rejected) -> None:
    assert rejected("-c", "1", "--dataset", "promts.jsonl").endswith("Did you mean prompts.jsonl?")


def test_without_a_dataset_the_prompts_of_the_wheel_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    class Chosen(Exception):
        pass

    def stop(wanted: Measurement, _: object) -> None:
        uris.append(wanted.run.spec.workloads[0].dataset.uri)
        raise Chosen

    uris: list[str | None] = []
    monkeypatch.setattr("specbench_client.cli.measure_probing.choose_what_is_open", stop)
    options = measure.make_context("measure", ["--endpoint", ENGINE, "-c", "1"]).params
    with pytest.raises(Chosen):
        planned_measurement(options)
    assert uris == [str(EXAMPLES / "prompts.jsonl")]
    assert Path(str(uris[0])).is_file()


def test_empty_dataset_is_rejected_with_its_flag(rejected: Rejected) -> None:
    assert "--dataset '': No such file or directory: give a file of prompts" in rejected(
        "--dataset", "", "--concurrency", "1"
    )
