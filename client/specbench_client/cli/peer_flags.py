"""Flags of other load generators: the table from which `measure` accepts or answers them, and the documentation page.

A flag with the same meaning is accepted in place of ours. A flag with another meaning, or without an equivalent, is an
error that names our flag and the difference. The flags of `--help` stay ours; docs/reference/peer-flags.md lists these.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum


class Meaning(StrEnum):
    """How a flag of another tool relates to `measure`."""

    SAME = "same"
    """Accepted: translated into our flags."""
    DIFFERENT = "different"
    """An error that names our flag and the difference."""
    REFUSED = "refused"
    """An error: `measure` has no equivalent."""


@dataclass(frozen=True)
class PeerFlag:
    """One flag, with its other spellings. `note` completes the error message of a flag that is not accepted."""

    flags: tuple[str, ...]
    tools: str
    ours: str
    meaning: Meaning = Meaning.SAME
    note: str = ""
    values: int | None = 1
    """Number of values: 0 for a switch, None for one or more."""
    choices: tuple[str, ...] = ()
    """The values of a flag that is a switch in another tool: only these are taken as its value."""

    @property
    def name(self) -> str:
        """The first spelling, which identifies the flag."""
        return self.flags[0]


VLLM, SGLANG, AIPERF, GENAI_PERF, GUIDELLM = "vLLM", "SGLang", "AIPerf", "genai-perf", "GuideLLM"
_SERVING = f"{VLLM}, {SGLANG}"
_NVIDIA = f"{AIPERF}, {GENAI_PERF}"
PROFILES = ("synchronous", "concurrent", "throughput", "constant", "async", "poisson", "sweep")
_ALWAYS = "(always)"
_TRACE, _TRACE_FILE = "--arrival Trace --trace FILE", "the arrivals are read from a file of their own"
_ALL_CATEGORIES = (
    "measure sends all categories: name some in a file for `specbench run`, or select them with `specbench dataset"
    " select`"
)
_COMMON_PREFIX = "add --system-prompt-tokens N to a dataset, or give prompts with a common prefix in a file"
_POEM = "sonnet shuffles the lines of one poem: give prompts with --dataset FILE"
_IN_A_FILE = "name it in a file for `specbench run`"
_ONE_MODEL = "one model is measured: give its name with --model"
_OWN_RATES = "give the rates as --rate 1,2,4,8, each of which is measured on its own"
_FOLDER = "it is a folder; `report --to FILE` writes one file"


def _no_effect(tools: str, *flags: str, ours: str = _ALWAYS, note: str = "") -> PeerFlag:
    return PeerFlag(flags, tools, ours, note=note, values=0)


def _different(tools: str, flag: str, ours: str, note: str, values: int | None = 1) -> PeerFlag:
    return PeerFlag((flag,), tools, ours, Meaning.DIFFERENT, note, values)


def _refused(tools: str, flag: str, note: str, values: int | None = 1) -> PeerFlag:
    return PeerFlag((flag,), tools, "", Meaning.REFUSED, note, values)


_SERVER = (
    PeerFlag(("--base-url",), _SERVING, "--endpoint"),
    PeerFlag(("--url", "-u"), _NVIDIA, "--endpoint", note="without a scheme: http://"),
    PeerFlag(("--target",), GUIDELLM, "--endpoint"),
    PeerFlag(("--host",), _SERVING, "--endpoint", note="with `--port`: http://HOST:PORT"),
    PeerFlag(("--port",), _SERVING, "--endpoint", note="without `--host`: 127.0.0.1"),
    PeerFlag(
        ("--endpoint /v1/chat/completions", "--custom-endpoint"),
        f"{VLLM}, {_NVIDIA}",
        _ALWAYS,
        note="only this path: `measure` sends chat completions",
    ),
    PeerFlag(("-m", "--model-names", "--served-model-name"), f"{VLLM}, {_NVIDIA}", "--model"),
    PeerFlag(
        ("--backend", "--backend-type"),
        f"{_SERVING}, {GENAI_PERF}, {GUIDELLM}",
        "--dialect",
        note="vllm, sglang, trt and their variants; openai, openai-chat and openai_http are `openai`. Requests are chat"
        " completions for every dialect",
    ),
    PeerFlag(
        ("--endpoint-type",),
        f"{VLLM}, {_NVIDIA}",
        "--dialect",
        note="as `--backend`; chat is the only kind of request",
    ),
    PeerFlag(("--service-kind",), GENAI_PERF, _ALWAYS, note="only openai"),
    PeerFlag(("--request-type",), GUIDELLM, _ALWAYS, note="only chat_completions"),
    PeerFlag(
        ("--api-key",),
        AIPERF,
        "",
        Meaning.REFUSED,
        "a key on a command line is visible to other users: set OPENAI_API_KEY, or name a variable with --api-key-env",
    ),
)

_LOAD = (
    PeerFlag(("--num-prompts",), _SERVING, "--requests", note="-1: every prompt once, as without it"),
    PeerFlag(("--request-count", "--num-requests"), _NVIDIA, "--requests"),
    PeerFlag(("--max-requests",), GUIDELLM, "--requests"),
    PeerFlag(("--max-seconds", "--benchmark-duration"), f"{GUIDELLM}, {AIPERF}", "--duration", note="per load"),
    PeerFlag(
        ("--request-rate",),
        f"{_SERVING}, {_NVIDIA}",
        "--rate",
        note="inf with `--max-concurrency` is a closed loop. inf alone is an error: all requests at one moment have no"
        " steady state. Latency counts from the scheduled time",
    ),
    PeerFlag(
        ("--max-concurrency",),
        _SERVING,
        "--concurrency, --max-in-flight",
        note="alone, or with `--request-rate inf`, the streams of a closed loop; beside a finite rate its limit, and"
        " latency counts from the scheduled time. AIPerf's `--concurrency` beside a rate as well",
    ),
    PeerFlag(
        ("--rate-type", "--profile"),
        GUIDELLM,
        "--concurrency, --rate, --arrival, --sweep",
        note="synchronous and concurrent are closed loops, constant and poisson are arrivals; `--rate` follows from it."
        " sweep is `--sweep`, which doubles the concurrency instead of interpolating rates; throughput is an error",
        choices=PROFILES,
    ),
    PeerFlag(("--arrival-pattern", "--request-rate-mode"), AIPERF, "--arrival", note="constant, poisson, gamma"),
    PeerFlag(("--arrival-smoothness", "--vllm-burstiness"), AIPERF, "--burstiness", note="with `--arrival Gamma`"),
    PeerFlag(("--num-warmups", "--warmup-requests", "--warmup-request-count"), f"{_SERVING}, {_NVIDIA}", "--warmup"),
    _refused(
        VLLM,
        "--ramp-up-strategy",
        "a rate that changes all the time has no steady state to report: give the rates, such as --rate 1,2,4,8, each"
        " of which is measured on its own",
    ),
    _refused(VLLM, "--ramp-up-start-rps", _OWN_RATES),
    _refused(VLLM, "--ramp-up-end-rps", _OWN_RATES),
    _different(_NVIDIA, "--measurement-interval", "--duration", "it is in milliseconds, --duration in seconds"),
    _different(AIPERF, "--fixed-schedule", _TRACE, _TRACE_FILE, 0),
    _different(SGLANG, "--use-trace-timestamps", _TRACE, _TRACE_FILE, None),
    _refused(
        AIPERF, "--request-cancellation-rate", "every request is answered completely, so that all arms have the same"
    ),
    _refused(AIPERF, "--conversation-num", "give the number of conversations with --requests"),
    _refused(VLLM, "--probe-request-rate", "one point has one load: give several rates, such as --rate 1,2,4"),
)

_PROMPTS = (
    PeerFlag(
        ("--dataset-name", "--public-dataset"),
        f"{_SERVING}, {AIPERF}",
        "--dataset",
        note="random, sharegpt, custom, openai, spec_bench, speed_bench, mt-bench and hf. Others are errors that name"
        " what to give",
    ),
    PeerFlag(("--dataset-path",), _SERVING, "--dataset", note="the file of `--dataset-name`"),
    PeerFlag(("--input-file",), _NVIDIA, "--dataset"),
    PeerFlag(("--custom-dataset-type",), AIPERF, "(detected)", note="files are recognised by their columns"),
    PeerFlag(
        ("--data",),
        GUIDELLM,
        "--dataset",
        note="prompt_tokens=N,output_tokens=M is random:WORDS, --max-tokens M and --ignore-eos",
    ),
    PeerFlag(
        ("--random-input-len", "--random-input", "--input-len"),
        _SERVING,
        "--dataset random:WORDS",
        note="about two tokens per word. Random text misleads for speculative decoding: every result is flagged",
    ),
    PeerFlag(("--synthetic-input-tokens-mean", "--isl"), _NVIDIA, "--dataset random:WORDS", note="as above"),
    PeerFlag(("--synthetic-input-tokens-stddev", "--isl-stddev"), _NVIDIA, _ALWAYS, note="only 0: lengths are fixed"),
    PeerFlag(
        (
            "--random-output-len",
            "--random-output",
            "--output-len",
            "--sharegpt-output-len",
            "--custom-output-len",
            "--hf-output-len",
            "--spec-bench-output-len",
            "--speed-bench-output-len",
            "--output-tokens-mean",
            "--osl",
        ),
        f"{_SERVING}, {_NVIDIA}",
        "--max-tokens",
        note="an upper limit; add `--ignore-eos` for exactly this length (SGLang's default)",
    ),
    PeerFlag(("--output-tokens-stddev", "--osl-stddev"), _NVIDIA, _ALWAYS, note="only 0: the limit is fixed"),
    _no_effect(GENAI_PERF, "--output-tokens-mean-deterministic", ours="--ignore-eos"),
    _different(
        _SERVING,
        "--random-range-ratio",
        "--dataset random:WORDS",
        "lengths are fixed (its value for that is 0 in vLLM and 1 in SGLang): leave it out",
    ),
    _refused(VLLM, "--random-prefix-len", _COMMON_PREFIX),
    _refused(VLLM, "--sonnet-input-len", _POEM),
    _refused(VLLM, "--sonnet-output-len", _POEM),
    _refused(VLLM, "--sonnet-prefix-len", _POEM),
    _different(VLLM, "--spec-bench-category", "dataset.categories", _ALL_CATEGORIES),
    _different(VLLM, "--speed-bench-category", "dataset.categories", _ALL_CATEGORIES),
    _different(VLLM, "--hf-split", "dataset.uri", "each source has one split: give another one as a file"),
    _different(VLLM, "--speed-bench-dataset-subset", "dataset.config", _IN_A_FILE),
    _refused(VLLM, "--no-oversample", "give at most as many --requests as there are prompts, or leave it out", 0),
    _different(VLLM, "--hf-subset", "dataset.config", _IN_A_FILE),
    _refused(SGLANG, "--sharegpt-context-len", "select prompts by length first, with `specbench dataset select`"),
    _refused(SGLANG, "--tokenize-prompt", "rows with a column token_ids are sent as they are", 0),
    _refused(SGLANG, "--gsp-num-groups", _COMMON_PREFIX),
    _refused(_NVIDIA, "--num-dataset-entries", "random:WORDS has one prompt for each of --requests"),
    _no_effect(_SERVING, "--disable-shuffle", note="prompts are sent in the order of the file"),
    _no_effect(SGLANG, "--apply-chat-template", note="the engine applies its own to every request"),
    _different(
        VLLM,
        "--skip-chat-template",
        "--dataset FILE",
        "the engine applies its chat template to messages; rows with a column token_ids are sent as they are",
        0,
    ),
    _different(
        f"{_SERVING}, {_NVIDIA}",
        "--tokenizer",
        "--tokenizer",
        "there it counts tokens; here it applies its chat"
        " template and sends token ids. Leave it out: the engine counts tokens. To send token ids, use only flags of"
        " specbench",
    ),
    _different(
        VLLM,
        "--no-stream",
        "--no-stream",
        "there it concerns loading the dataset; here it requests whole answers."
        " Leave it out, or use only flags of specbench",
        0,
    ),
)

_REQUESTS = (
    _no_effect(_NVIDIA, "--streaming", note="`--no-stream` requests whole answers"),
    _no_effect(SGLANG, "--disable-stream", ours="--no-stream"),
    _no_effect(SGLANG, "--disable-ignore-eos", note="answers end where the model ends them, unless `--ignore-eos`"),
    PeerFlag(("--random-seed",), _NVIDIA, "--seed"),
    PeerFlag(("--extra-request-body",), SGLANG, "--extra-body"),
    PeerFlag(
        ("--extra-inputs",),
        _NVIDIA,
        "--extra-body",
        note="NAME:VALUE or JSON; ignore_eos:true is --ignore-eos",
        values=None,
    ),
    PeerFlag(("-H",), _NVIDIA, "--header"),
    _different(VLLM, "--top-k", "--extra-body", "give --extra-body '{\"top_k\": 20}'"),
    _different(VLLM, "--min-p", "--extra-body", "give --extra-body '{\"min_p\": 0.1}'"),
    _refused(VLLM, "--logprobs", "log probabilities change what the engine does in each step"),
    _refused(_SERVING, "--lora-modules", _ONE_MODEL, None),
    _refused(SGLANG, "--lora-name", _ONE_MODEL, None),
)

_RESULTS = (
    PeerFlag(
        ("--goodput",),
        f"{VLLM}, {_NVIDIA}",
        "--slo-ttft-ms, --slo-tpot-ms, --slo-e2e-ms",
        note="ttft, tpot, e2el; in AIPerf time_to_first_token, inter_token_latency, request_latency. In milliseconds",
        values=None,
    ),
    PeerFlag(
        ("--percentile-metrics",),
        VLLM,
        _ALWAYS,
        note="ttft, tpot, e2el. itl is an error: it counts gaps between chunks, each of which has several tokens",
    ),
    PeerFlag(("--metric-percentiles",), VLLM, "--percentiles", note="50, 90, 95, 99"),
    _no_effect(VLLM, "--save-result"),
    _no_effect(VLLM, "--save-detailed", note="every request is a record"),
    _no_effect(SGLANG, "--output-details", note="every request is a record"),
    _no_effect(VLLM, "--append-result", note="each run has its own folder"),
    PeerFlag(("--result-dir", "--artifact-dir", "--output-artifact-dir"), f"{VLLM}, {_NVIDIA}", "--results"),
    _different(VLLM, "--result-filename", "--results", _FOLDER),
    _different(SGLANG, "--output-file", "--results", _FOLDER),
    _different(GUIDELLM, "--output-path", "--results", _FOLDER),
    _different(_NVIDIA, "--profile-export-file", "--results", _FOLDER),
    PeerFlag(("--label",), VLLM, "--name"),
    _no_effect(_SERVING, "--disable-tqdm", ours="(no effect)", note="the progress is shown on terminals only"),
    _no_effect(VLLM, "--trust-remote-code", ours="(no effect)", note="no model code is loaded"),
    _different(
        VLLM, "--plot-timeline", "report --to report.html", "measure first, then plot from the stored records", 0
    ),
    _different(
        VLLM, "--plot-dataset-stats", "dataset inspect", "`specbench dataset inspect` shows the prompts' lengths", 0
    ),
    _refused(
        SGLANG,
        "--flush-cache",
        "a server's cache is its own: each turn of a comparison has prompts of its own (--baseline)",
        0,
    ),
    _different(VLLM, "--ready-check-timeout-sec", "(no wait)", "a server that does not answer is reported at once"),
    _different(
        f"{GENAI_PERF}, {AIPERF}", "--concurrency-range", "--concurrency", "give the levels: --concurrency 1,2,4,8"
    ),
)

PEER_FLAGS: tuple[PeerFlag, ...] = (*_SERVER, *_LOAD, *_PROMPTS, *_REQUESTS, *_RESULTS)
GROUPS: Mapping[str, Sequence[PeerFlag]] = {
    "Server and model": _SERVER,
    "Load": _LOAD,
    "Prompts and lengths": _PROMPTS,
    "Requests": _REQUESTS,
    "Results": _RESULTS,
}
"""The same rows by the sections of the page."""
BY_FLAG: Mapping[str, PeerFlag] = {spelling: row for row in PEER_FLAGS for spelling in row.flags}
