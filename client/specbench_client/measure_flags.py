"""The flags of `specbench measure` that set fields of a SpecBenchRun, one row each.

The option of the command line, the parameter in Python, the field of the spec, and the name in messages about that
field all follow from the row; type, bounds and default are those of the field.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from specbench_api.plan.plan import REPEATS_TO_DECIDE
from specbench_api.spec.engine import PromptCache
from specbench_api.spec.load import REPEATS_MAX, ArrivalProcess


@dataclass(frozen=True)
class SpecFlag:
    """A flag, the path below `spec` of the field of a SpecBenchRun that it sets, and its help text."""

    name: str
    path: str
    help: str
    metavar: str | None = None
    short: str | None = None
    maximum: float = math.inf
    """A lower upper bound than that of the field."""

    @property
    def parameter(self) -> str:
        """The name of the value in Python."""
        return self.name.removeprefix("--").replace("-", "_")

    @property
    def field(self) -> str:
        """The path as messages write it; a single word only with its workload, because it is also an English word."""
        short = self.path.removeprefix("workloads[0].")
        return self.path if short.isalpha() and short.islower() else short


_FIRST = "workloads[0]"
FLAGS = (
    SpecFlag(
        "--model", "model.name", "Name of the model in its requests.  [default: the only one that it serves]", "NAME"
    ),
    SpecFlag(
        "--dialect",
        "engine.dialect",
        "The engine's dialect; all but openai report tokens per chunk and acceptance.  [default: detected from the"
        " engine's pages]",
    ),
    SpecFlag(
        "--dataset",
        f"{_FIRST}.dataset.uri",
        "Prompts: a JSONL, JSON, Parquet or CSV file, a text with one a line, SOURCE:FILE, or a source on the hub;"
        " see `specbench dataset list`.  [default: 60 prompts of specbench]",
        "NAME-or-FILE",
    ),
    SpecFlag(
        "--prompt-column",
        f"{_FIRST}.dataset.promptColumn",
        "Column with the text of the prompts.  [default: prompt, or what other tools call it]",
        "NAME",
    ),
    SpecFlag(
        "--allow-missing",
        f"{_FIRST}.dataset.allowMissing",
        "Skip prompts without text that can be sent, such as those with images; results list what was skipped.",
    ),
    SpecFlag(
        "--system-prompt-tokens",
        f"{_FIRST}.systemPrompt.tokens",
        "Begin every prompt with the same system message of N random words.",
        "N",
    ),
    SpecFlag(
        "--concurrency", "load.concurrency", "Closed loop: number of concurrent requests. Repeatable.", short="-c"
    ),
    SpecFlag("--rate", "load.rate", "Open loop: conversations per second. Repeatable.", short="-r"),
    SpecFlag("--arrival", "load.arrival.process", "Open loop: the arrival process."),
    SpecFlag(
        "--burstiness",
        "load.arrival.burstiness",
        "With --arrival gamma: shape of the gaps; below 1 is burstier than Poisson.",
    ),
    SpecFlag(
        "--max-in-flight",
        "load.arrival.maxInFlight",
        "Open loop: most conversations at once; others wait, and their latency counts from the scheduled time.",
        "N",
    ),
    SpecFlag(
        "--trace",
        "load.arrival.uri",
        "With --arrival trace: JSONL or CSV with a column `timestamp` (s; in Mooncake's: ms); repeated if needed.",
        "FILE",
    ),
    SpecFlag(
        "--requests",
        "load.requests",
        "Conversations measured per point, besides warm-up and fillers.  [default: every prompt once]",
        "N",
        "-n",
    ),
    SpecFlag(
        "--requests-per-stream",
        "load.requestsPerStream",
        "Instead of --requests: conversations per stream, so that every load takes about as long."
        "  [default with --baseline: about six seconds or more]",
        "N",
    ),
    SpecFlag(
        "--duration",
        "load.durationSeconds",
        "Instead of --requests: start conversations for this many seconds, then let them finish.",
        "SECONDS",
    ),
    SpecFlag(
        "--warmup",
        "load.warmupRequests",
        "Minimum number of warm-up requests before the first point; 0: no warm-up.",
        "N",
    ),
    SpecFlag(
        "--repeats",
        "load.repeats",
        "How often to measure each load. `gate`, and any claim of a difference, need 3 or more.  [default: 1; with"
        f" --baseline {REPEATS_TO_DECIDE}; with --until-sure at most {REPEATS_MAX}]",
        "N",
        maximum=REPEATS_MAX,
    ),
    SpecFlag("--max-tokens", f"{_FIRST}.output.maxTokens", "Maximum tokens of an answer.", "N"),
    SpecFlag("--temperature", f"{_FIRST}.sampling.temperature", "Sampling temperature; 0 is greedy."),
    SpecFlag("--top-p", f"{_FIRST}.sampling.topP", "Nucleus sampling probability."),
    SpecFlag("--seed", f"{_FIRST}.sampling.seed", "Seed of sampling and of arrivals."),
    SpecFlag(
        "--ignore-eos",
        f"{_FIRST}.output.ignoreEos",
        "Generate past the end of the answer, up to --max-tokens.",
    ),
    SpecFlag(
        "--no-stream",
        f"{_FIRST}.output.stream",
        "Request whole answers; measures latency and tokens, but no TTFT and no TPOT.",
    ),
    SpecFlag(
        "--prompt-cache",
        "promptCache",
        "as-served: servers may reuse earlier prompts, as for your users. disabled: they must not, which compares"
        " drafting alone; each request disables llama.cpp's cache, other servers must run without a prefix cache."
        "  [default: as-served]",
    ),
    SpecFlag(
        "--tokenizer",
        f"{_FIRST}.chatTemplate.tokenizer",
        "Apply this tokenizer's chat template in the client, and send token ids.  [default: send messages]",
        "NAME-or-FOLDER",
    ),
    SpecFlag(
        "--extra-body",
        f"{_FIRST}.extraBody",
        'Additional fields of each request: {"top_k": 20}; null removes a field: {"seed": null}.',
    ),
    SpecFlag(
        "--answers",
        f"{_FIRST}.answers",
        'What answers are checked for, as workloads[].answers: {"expected": {"match": "Number"}}, jsonSchema or tools',
    ),
    SpecFlag("--slo-ttft-ms", "slo.ttftMs", "Longest acceptable time to first token, in milliseconds.", "MS"),
    SpecFlag(
        "--slo-tpot-ms",
        "slo.tpotMs",
        "Longest acceptable time per output token after the first, in milliseconds.",
        "MS",
    ),
    SpecFlag("--slo-e2e-ms", "slo.e2eMs", "Longest acceptable time to the last token, in milliseconds.", "MS"),
)

MEASURED_WORKLOAD = "prompts"
"""The name of the only workload of a run of `measure`. A SpecBenchRun with endpoints names its workloads itself."""

# Messages about fields of a SpecBenchRun, which users of `measure` never see.

_NAMES = {flag.field: flag.name for flag in FLAGS} | {
    "metadata.name": "--name",
    "engine.endpoints": "--endpoint",
    "load.arrival": "--arrival, --burstiness, --max-in-flight and --trace",
    "load.arrival.seed": "--seed",
    "systemPrompt": "--system-prompt-tokens",
    "set dataset.allowMissing: true": "give --allow-missing",
    "set chatTemplate.appliedBy: Client": "give --tokenizer",
    "set chatTemplate.appliedBy: Engine": "leave --tokenizer out",
    "chatTemplate.appliedBy: Client": "--tokenizer",
    "answers.jsonSchema": "--answers jsonSchema",
    "answers.tools": "--answers tools",
    "answers.expected": "--answers expected",
    "the spec's folder": "the working directory",
}
_VALUES = "|".join([*PromptCache, *ArrivalProcess])
_FIELD = re.compile(
    r"(?<![\w./-])(?:spec(?:\.load(?:\.arrival)?)?: |(?:spec\.)?(?:workloads\[0\]\.)?"
    rf"(?P<field>{'|'.join(map(re.escape, sorted(_NAMES, key=len, reverse=True)))})(?!\w)"
    rf"(?::?(?P<value> (?:{_VALUES})\b))?"
    r"|spec\.(?=(?:engine|load|model|workloads)\b))"
)


def with_flag_names(text: str) -> str:
    """Return a text with every field replaced by the flag that sets it.

    The path of a problem with several flags (`spec: `, `spec.load: `) is left out; elsewhere `spec.load` is `load`.

    A value behind it is spelled as in `--help`: `promptCache: AsServed` becomes `--prompt-cache as-served`.
    """
    return _FIELD.sub(_as_flag, text)


def _as_flag(found: re.Match[str]) -> str:
    value = re.sub("(?<=[a-z])(?=[A-Z])", "-", found["value"] or "").lower()
    return f"{_NAMES[found['field']]}{value}" if found["field"] else ""
