"""Translates a command line with flags of other load generators (`peer_flags`) into the flags of `measure`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence

import click

from specbench_client.bounded_json import parse_json
from specbench_client.cli.peer_flags import BY_FLAG, PROFILES, Meaning, PeerFlag

DEFAULT_PORT = "8000"
CHAT_PATH = "/v1/chat/completions"

Found = dict[str, list[str]]
"""Name of a peer's flag (`PeerFlag.name`) → its values in order; a switch has none."""


class PeerFlagCommand(click.Command):
    """A command that accepts flags of other load generators, or answers them with its own."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse as click does, after translating flags of other tools. Raises UsageError."""
        try:
            return super().parse_args(ctx, own_arguments(self.params, args))
        except click.UsageError as error:
            error.ctx = error.ctx or ctx
            raise


def own_arguments(params: Sequence[click.Parameter], args: Sequence[str]) -> list[str]:
    """Return the arguments with flags of other tools replaced by our own. Raises UsageError."""
    own, found, shared = _split(params, args)
    if not found:
        return list(args)
    rows = [BY_FLAG[name] for name in [*found, *shared]]
    for row in rows:
        if row.meaning is not Meaning.SAME:
            raise click.UsageError(_answer(row))
    given = ", ".join(found)
    arguments = [argument for translate in _JOINT for argument in translate(found, own)]
    arguments += [word for name, values in found.items() for word in _TRANSLATIONS[name](values)]
    _reject_twice(params, [*own, *arguments], given)
    return [*own, *arguments]


def _reject_twice(params: Sequence[click.Parameter], arguments: Sequence[str], given: str) -> None:
    """Raise UsageError for a flag of ours that has two values, of which click would silently take the last."""
    for param in params:
        if param.multiple or getattr(param, "is_flag", False) or "--model" in param.opts:  # vLLM gives two names
            continue
        flag, times = param.opts[0], sum(arguments.count(flag) for flag in param.opts)
        if times > 1:
            raise click.UsageError(f"{flag} is given {times} times, by itself or by {given}: give it once.")


def _answer(row: PeerFlag) -> str:
    if row.meaning is Meaning.REFUSED:
        return f"{row.name} ({row.tools}) is not supported: {row.note}."
    return f"{row.name} ({row.tools}) has another meaning here; the flag is {row.ours}: {row.note}."


def _split(params: Sequence[click.Parameter], args: Sequence[str]) -> tuple[list[str], Found, list[str]]:
    """Return our own arguments, the peers' flags with their values, and own flags that a peer has with another meaning.

    A value of our own flags is never taken for a flag.
    """
    valued = {flag: not getattr(param, "is_flag", False) for param in params for flag in param.opts}
    own: list[str] = []
    found: Found = {}
    shared: list[str] = []
    words = list(args)
    while words:
        word = words.pop(0)
        flag, equals, value = word.partition("=")
        if flag in valued:
            values = [value] if equals else _take(words, 1) if valued[flag] else []
            if flag == "--endpoint" and "".join(values).startswith("/"):
                found.setdefault(_PATH, []).extend(values)
                continue
            own += [flag, *values]
            shared += [flag] if flag in BY_FLAG else []
        elif flag in BY_FLAG:
            row = BY_FLAG[flag]
            values = [value] if equals else _values(row, flag, words)
            found.setdefault(row.name, []).extend(values)
        else:
            own.append(word)
    return own, found, shared


def _values(row: PeerFlag, flag: str, words: list[str]) -> list[str]:
    """Remove the flag's values from the words after it, and return them."""
    count = row.values
    if row.choices and (not words or words[0] not in row.choices):
        count = 0
    if count is None:
        count = next((at for at, word in enumerate(words) if word.startswith("--")), len(words))
    if len(words) < count or (row.values is None and not count):
        raise click.UsageError(f"{flag} needs a value.")
    return _take(words, count)


def _take(words: list[str], count: int) -> list[str]:
    taken = words[:count]
    del words[:count]
    return taken


# Flags that are translated one by one. Each function gets the values of its flag and returns our arguments.

Translate = Callable[[Sequence[str]], list[str]]
_PATH = "--endpoint /v1/chat/completions"


def _renamed(ours: str) -> Translate:
    return lambda values: [word for value in values for word in (ours, value)]


def _dropped(_: Sequence[str]) -> list[str]:
    return []


def _only(row: str, *accepted: str, instead: str) -> Translate:
    """Return a translation into nothing that rejects all values but some."""

    def translate(values: Sequence[str]) -> list[str]:
        for value in values:
            if value not in accepted:
                raise click.UsageError(f"{row} {value}: {instead}.")
        return []

    return translate


def _url(values: Sequence[str]) -> list[str]:
    return [word for value in values for word in ("--endpoint", value if "://" in value else f"http://{value}")]


_DIALECTS = {
    "openai": "openai",
    "openai-chat": "openai",
    "openai_http": "openai",
    "chat": "openai",
    "vllm": "vllm",
    "vllm-chat": "vllm",
    "sglang": "sglang",
    "sglang-native": "sglang",
    "sglang-oai": "sglang",
    "sglang-oai-chat": "sglang",
    "trt": "tensorrt-llm",
    "tensorrt-llm": "tensorrt-llm",
    "tensorrtllm": "tensorrt-llm",
    "llama.cpp": "llama-cpp",
}


def _dialect(values: Sequence[str]) -> list[str]:
    for value in values:
        if value not in _DIALECTS:
            known = ", ".join(dict.fromkeys(_DIALECTS.values()))
            raise click.UsageError(f"{value} is not a server that measure knows: give --dialect, one of {known}.")
    return [word for value in values for word in ("--dialect", _DIALECTS[value])]


def _endpoint_type(values: Sequence[str]) -> list[str]:
    """`chat` is the only kind of request; older versions of vLLM have the backend here."""
    return [] if list(values) == ["chat"] else _dialect(values)


def _requests(values: Sequence[str]) -> list[str]:
    return [word for value in values if value != "-1" for word in ("--requests", value)]


_LIMITS = {
    "ttft": "--slo-ttft-ms",
    "time_to_first_token": "--slo-ttft-ms",
    "tpot": "--slo-tpot-ms",
    "inter_token_latency": "--slo-tpot-ms",
    "e2el": "--slo-e2e-ms",
    "request_latency": "--slo-e2e-ms",
}


def _goodput(values: Sequence[str]) -> list[str]:
    arguments: list[str] = []
    for text in " ".join(values).split():
        name, colon, limit = text.partition(":")
        if not colon or name not in _LIMITS:
            raise click.UsageError(
                f"--goodput {text}: give NAME:MILLISECONDS with one of {', '.join(_LIMITS)}, or --slo-ttft-ms,"
                " --slo-tpot-ms and --slo-e2e-ms."
            )
        arguments += [_LIMITS[name], limit]
    return arguments


def _percentile_metrics(values: Sequence[str]) -> list[str]:
    for name in ",".join(values).split(","):
        if name not in ("ttft", "tpot", "e2el"):
            raise click.UsageError(
                f"--percentile-metrics {name}: tables always have TTFT, TPOT and E2E latency. Gaps between chunks (itl)"
                " are left out: with speculative decoding a chunk has several tokens, TPOT is per token. Leave it out."
            )
    return []


def _extra_inputs(values: Sequence[str]) -> list[str]:
    fields: dict[str, object] = {}
    for value in values:
        if value.startswith("{"):
            return ["--extra-body", value]
        name, _, text = value.partition(":")
        try:
            fields[name] = parse_json(text)
        except ValueError:
            fields[name] = text
    ignore = ["--ignore-eos"] if fields.pop("ignore_eos", False) else []
    return [*ignore, *(["--extra-body", json.dumps(fields)] if fields else [])]


_ARRIVALS = {"constant": "Constant", "poisson": "Poisson", "gamma": "Gamma"}


def _arrival(values: Sequence[str]) -> list[str]:
    for value in values:
        if value not in _ARRIVALS:
            raise click.UsageError(
                f"{value} is not an arrival process: give --arrival {' or '.join(_ARRIVALS.values())}."
            )
    return [word for value in values for word in ("--arrival", _ARRIVALS[value])]


# Flags that are translated together. Each function removes its flags from the found ones (and from our own arguments
# where a peer uses one of our names), and returns our arguments.


def _one(found: Found, name: str) -> str | None:
    """Remove a flag and return its last value; None if it was not given."""
    values = found.pop(name, None)
    return values[-1] if values else None


def _address(found: Found, _: list[str]) -> list[str]:
    """Join --host and --port."""
    given = "--host" in found or "--port" in found
    host, port = _one(found, "--host"), _one(found, "--port")
    if not given:
        return []
    if host is not None and "://" in host:
        return ["--endpoint", host if port is None else f"{host}:{port}"]
    if port is None:
        raise click.UsageError(f"--host {host} has no --port: give --endpoint http://{host}:{DEFAULT_PORT}.")
    host = "127.0.0.1" if host in (None, "0.0.0.0") else host  # noqa: S104 -- a server's address, as SGLang prints it
    return ["--endpoint", f"http://{host}:{port}"]


def _load(found: Found, own: list[str]) -> list[str]:
    """Combine the rate, its cap, its burstiness and GuideLLM's profile."""
    if found.get("--rate-type") == []:
        raise click.UsageError(
            "--profile without a value starts SGLang's profiler, which slows down what is measured: leave it out."
        )
    profile = _one(found, "--rate-type")
    if profile is not None:
        return _profile(profile, own)
    rate, most = _one(found, "--request-rate"), _one(found, "--max-concurrency")
    if rate is None:
        return ["--concurrency", most] if most is not None else []
    # AIPerf's name for the same limit is ours for the number of streams.
    most = most or next(iter(_remove(own, "--concurrency", "-c")), None)
    if rate == "inf" and most is None:
        raise click.UsageError(
            "--request-rate inf without a concurrency sends all requests at one moment, and no part of such a burst"
            " is a steady state: give --concurrency N, a closed loop, or --rate R."
        )
    if rate == "inf":
        return ["--concurrency", str(most)]
    gamma = "--burstiness" in own and "--arrival" not in own and "--arrival-pattern" not in found
    limit = ["--max-in-flight", most] if most is not None else []
    return ["--rate", rate, *limit, *(["--arrival", "Gamma"] if gamma else [])]


def _remove(own: list[str], *flags: str) -> list[str]:
    """Remove our own flags, and return their values."""
    values: list[str] = []
    for flag in flags:
        while flag in own:
            at = own.index(flag)
            values += own[at + 1 : at + 2]
            del own[at : at + 2]
    return values


def _profile(profile: str, own: list[str]) -> list[str]:
    """Translate GuideLLM's --rate-type; it determines what its --rate means."""
    rates = _remove(own, "--rate", "-r")
    if profile == "synchronous":
        return ["--concurrency", "1"]
    if profile == "sweep":  # its --rate is the number of loads, of which ours ends the sweep itself
        return ["--sweep"]
    if profile == "throughput":
        raise click.UsageError(
            "--rate-type throughput sends all requests at one moment, and no part of such a burst is a steady state:"
            " give --concurrency N, or --sweep."
        )
    if profile not in PROFILES or not rates:
        raise click.UsageError(f"--rate-type {profile} needs --rate: or give --concurrency N, or --rate R.")
    if profile == "concurrent":
        return [word for rate in rates for word in ("--concurrency", rate)]
    arrival = "Poisson" if profile == "poisson" else "Constant"
    return [*(word for rate in rates for word in ("--rate", rate)), "--arrival", arrival]


_NAMED_DATASETS = {
    "sharegpt": "sharegpt",
    "openai": "openai-logs",
    "spec_bench": "spec-bench",
    "speed_bench": "speed-bench",
    "mt-bench": "mt-bench",
}
_HUB_DATASETS = {
    "likaixin/instructcoder": "instructcoder",
    "philschmid/mt-bench": "mt-bench",
    "openai/openai_humaneval": "humaneval",
    "openai/gsm8k": "gsm8k",
    "ai-mo/aimo-validation-aime": "aime",
    "abisee/cnn_dailymail": "cnn-dailymail",
    "vdaita/edit_5k_char": "edit",
}
_RANDOM = ("random", "random-ids")


def _prompts(found: Found, _: list[str]) -> list[str]:
    """Combine the name of a dataset, its file, and the lengths of random prompts."""
    name, file, data = _one(found, "--dataset-name"), _one(found, "--dataset-path"), _one(found, "--data")
    tokens = _one(found, "--random-input-len") or _one(found, "--synthetic-input-tokens-mean")
    if data is not None:
        return _guidellm_data(data)
    if name in _RANDOM or (name is None and file is None and tokens is not None and "--input-file" not in found):
        if tokens is None:
            raise click.UsageError(
                "--dataset-name random: add --random-input-len TOKENS, or give --dataset random:WORDS."
            )
        return ["--dataset", _random(tokens)]
    if name == "hf":
        return ["--dataset", _hub(file)]
    if name == "custom" or name is None:
        if name is not None and file is None:
            raise click.UsageError("--dataset-name custom: add --dataset-path FILE, or give --dataset FILE.")
        return ["--dataset", file] if file is not None else []
    if name.startswith("mooncake") or name == "timed_trace":
        raise click.UsageError(
            f"--dataset-name {name}: replay the lengths and prefixes of a Mooncake trace with --dataset FILE, and its"
            " times with --arrival Trace --trace FILE."
        )
    if name not in _NAMED_DATASETS:
        known = ", ".join((*_RANDOM[:1], *_NAMED_DATASETS, "custom", "hf"))
        raise click.UsageError(
            f"--dataset-name {name} is not supported, but {known} are: give your prompts as --dataset FILE (JSONL with"
            " a column prompt or messages)."
        )
    source = _NAMED_DATASETS[name]
    return ["--dataset", source if file is None else f"{source}:{file}"]


def _random(tokens: str) -> str:
    if not tokens.isascii() or not tokens.isdigit() or not int(tokens):
        raise click.UsageError(f"{tokens!r} is not a number of input tokens: give --dataset random:WORDS.")
    return f"random:{int(tokens)}"


def _hub(name: str | None) -> str:
    source = _HUB_DATASETS.get((name or "").lower())
    if source is None:
        raise click.UsageError(
            f"--dataset-path {name} is not a data set that specbench knows: give a source of `specbench dataset list`,"
            " or a file, as --dataset."
        )
    return source


def _guidellm_data(text: str) -> list[str]:
    """Translate `prompt_tokens=256,output_tokens=128`, its JSON, a file, or a data set of the hub."""
    try:
        pairs = parse_json(text) if text.startswith("{") else dict(pair.split("=", 1) for pair in text.split(","))
    except ValueError:
        hub = _HUB_DATASETS.get(text.lower().removeprefix("hf:"))
        return ["--dataset", hub or text]
    unknown = sorted(set(pairs) - {"prompt_tokens", "output_tokens"})
    if unknown or "prompt_tokens" not in pairs:
        raise click.UsageError(
            f"--data {text}: only prompt_tokens and output_tokens are supported, both of a fixed length: give --dataset"
            " random:WORDS and --max-tokens N, or a file as --dataset."
        )
    output = ["--max-tokens", str(pairs["output_tokens"]), "--ignore-eos"] if "output_tokens" in pairs else []
    return ["--dataset", _random(str(pairs["prompt_tokens"])), *output]


_JOINT: Sequence[Callable[[Found, list[str]], list[str]]] = (_address, _load, _prompts)
_TRANSLATIONS: Mapping[str, Translate] = {
    **{row.name: _dropped if row.ours.startswith("(") else _renamed(row.ours) for row in BY_FLAG.values()},
    "--base-url": _url,
    "--url": _url,
    "--target": _url,
    _PATH: _only(
        "--endpoint",
        CHAT_PATH,
        instead=f"measure sends chat completions ({CHAT_PATH}): leave it out, and give the server as --endpoint URL",
    ),
    "--backend": _dialect,
    "--endpoint-type": _endpoint_type,
    "--service-kind": _only("--service-kind", "openai", instead="only openai is supported: leave it out"),
    "--request-type": _only(
        "--request-type", "chat_completions", instead="measure sends chat completions: leave it out"
    ),
    "--num-prompts": _requests,
    "--arrival-pattern": _arrival,
    "--synthetic-input-tokens-stddev": _only(
        "--synthetic-input-tokens-stddev", "0", instead="lengths are fixed: give 0, or leave it out"
    ),
    "--output-tokens-stddev": _only(
        "--output-tokens-stddev", "0", instead="the limit is fixed: give 0, or leave it out"
    ),
    "--output-tokens-mean-deterministic": lambda _: ["--ignore-eos"],
    "--disable-stream": lambda _: ["--no-stream"],
    "--goodput": _goodput,
    "--percentile-metrics": _percentile_metrics,
    "--extra-inputs": _extra_inputs,
}
