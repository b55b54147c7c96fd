"""`spec.workloads[].dataset`: which prompts to send.

The dataset is part of the point's hash. Fields added later must therefore be optional, and leaving one out must mean
what it meant before the field existed.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, ClassVar

from pydantic import Field

from specbench_api.api_model import Distinct, KeyedBy, Names, RuledModel, ValidationRule, cel_list
from specbench_api.spec.model import PvcModel


class Source(Names):
    """Where prompts come from, and with it the format of their file. Each source: docs, "Workloads"."""

    JSONL = "jsonl"
    PARQUET = "parquet"
    CSV = "csv"
    SPEC_BENCH = "spec-bench"
    SPEED_BENCH = "speed-bench"
    MT_BENCH = "mt-bench"
    HUMANEVAL = "humaneval"
    GSM8K = "gsm8k"
    MATH_500 = "math-500"
    MBPP = "mbpp"
    AIME = "aime"
    GPQA = "gpqa"
    CNN_DAILYMAIL = "cnn-dailymail"
    SHAREGPT = "sharegpt"
    INSTRUCTCODER = "instructcoder"
    EDIT = "edit"
    OPENAI_LOGS = "openai-logs"
    AGENT_TRACES = "agent-traces"
    MOONCAKE = "mooncake"
    MIX = "mix"
    SESSIONS = "sessions"


class Entropy(StrEnum):
    """Tiers of SPEED-Bench's throughput configs: how hard the next token is to predict."""

    LOW = "Low"
    MIXED = "Mixed"
    HIGH = "High"


OWN_SOURCES = (Source.JSONL, Source.PARQUET, Source.CSV)
"""Sources of a user's own files."""
FILE_SOURCES = (
    *OWN_SOURCES, Source.SPEC_BENCH, Source.OPENAI_LOGS, Source.AGENT_TRACES,
    Source.MOONCAKE,
)  # fmt: skip
"""Sources without a public hub: they need `uri` or `pvc`."""
GENERATED_SOURCES = (Source.MIX, Source.SESSIONS)
"""Sources that are generated rather than read from a file: they take neither `uri` nor `pvc`."""
CONFIGS: dict[Source, tuple[str, ...]] = {
    Source.SPEED_BENCH: (
        "qualitative",
        "throughput_1k",
        "throughput_2k",
        "throughput_8k",
        "throughput_16k",
        "throughput_32k",
        "agentic",
    ),
    Source.GPQA: ("gpqa_main", "gpqa_diamond", "gpqa_extended"),
    Source.HUMANEVAL: ("chat", "raw"),
    Source.EDIT: ("edit_5k_char", "edit_10k_char"),
}
"""Accepted values of `config` by source; the first is the default. Other sources have no configs."""
PROMPTS_MAX = 1_000_000
BLOCK_TOKENS = 16
"""Tokens of a block of a prompt cache, by which the reuse of sessions is computed: vLLM's default."""
PVC_FOLDER = "/prompts"
"""Mount point of dataset volumes in client pods; each claim is mounted in a folder with its own name."""
IMAGE_DATA_FOLDER = "/usr/share/specbench"
"""Folder of data in specbench's own image."""
FILE_ROOTS_VARIABLE = "SPECBENCH_FILE_ROOTS"
"""Environment variable of client pods: the folders, separated by colons, below which a client reads the files that a
spec names. Where it is not set, a client reads any file."""

Category = Annotated[str, Field(min_length=1, max_length=64)]
Categories = Annotated[list[Category], Field(min_length=1, max_length=64)]
Tokens = Annotated[int, Field(ge=1, le=10_000_000)]


def _config_cel() -> str:
    allowed = " || ".join(
        f"(self.source == '{source}' && self.config in {cel_list(known)})" for source, known in CONFIGS.items()
    )
    return f"!has(self.config) || {allowed}"


def _config_text() -> str:
    return "; ".join(f"{source}: {', '.join(known)}" for source, known in CONFIGS.items())


class PvcFile(PvcModel):
    """A file on a PersistentVolumeClaim in the run's namespace; mounted read-only in client pods."""

    path: Annotated[str, Field(min_length=1, max_length=1024)]
    """Path of the file (or, for a source with several files, of its folder) inside the volume: `chat/prompts.jsonl`."""

    @property
    def mounted(self) -> str:
        """The path of the file inside a client pod."""
        return f"{PVC_FOLDER}/{self.claim_name}/{self.path.lstrip('/')}"


class LengthRange(RuledModel):
    """A range of token counts; both bounds are inclusive."""

    rules: ClassVar = (
        ValidationRule(
            "!has(self.min) || !has(self.max) || self.min <= self.max",
            "min is larger than max: swap them",
            lambda length: length.min is None or length.max is None or length.min <= length.max,
        ),
    )

    min: Tokens | None = None
    """Minimum number of tokens. Without it: no lower bound."""
    max: Tokens | None = None
    """Maximum number of tokens. Without it: no upper bound."""

    def holds(self, tokens: float) -> bool:
        """Return whether the number of tokens is within the range."""
        return (self.min is None or tokens >= self.min) and (self.max is None or tokens <= self.max)


class Sessions(RuledModel):
    """Source sessions: conversations of random words, of which a prompt cache can reuse a known share.

    Each has `turns` messages of the user of `turnTokens` words, after a system message that all sessions share. Turn t
    has n(t) = sharedPrefixTokens + t turnTokens + (t - 1) answerTokens tokens, of which all but the last turnTokens
    were computed before; whole blocks of 16 tokens of these can be reused. The share is the sum of what can be reused
    over the sum of n(t). Tokens of a chat template are not counted.
    """

    rules: ClassVar = (
        ValidationRule(
            f"!has(self.sharedPrefixTokens) || self.sharedPrefixTokens % {BLOCK_TOKENS} == 0",
            f"sessions.sharedPrefixTokens must be a multiple of {BLOCK_TOKENS}",
            lambda sessions: sessions.shared_prefix_tokens % BLOCK_TOKENS == 0,
        ),
    )

    shared_prefix_tokens: Annotated[int, Field(ge=0, le=131_072)] = 0
    """Words of the system message that all sessions share, a multiple of 16: with part of a block, two sessions might
    share the rest by chance. 0: none."""
    turns: Annotated[int, Field(ge=1, le=256)]
    """Turns of each session. One turn is one request."""
    turn_tokens: Annotated[int, Field(ge=16, le=131_072)]
    """Words of each of the user's messages."""
    answer_tokens: Annotated[int, Field(ge=1, le=131_072)]
    """Tokens of each answer, generated past its natural end. output.maxTokens must allow them."""

    @property
    def reusable_share(self) -> float:
        """The share of the prompt tokens of whole sessions that a prompt cache can reuse."""
        before = [
            self.shared_prefix_tokens + turn * (self.turn_tokens + self.answer_tokens) for turn in range(self.turns)
        ]
        reused = sum(tokens // BLOCK_TOKENS * BLOCK_TOKENS for tokens in before)
        return reused / sum(tokens + self.turn_tokens for tokens in before)


class Selection(RuledModel):
    """Prompts of one source: where they are stored, and which of them to use."""

    rules: ClassVar[tuple[ValidationRule, ...]] = (
        ValidationRule(
            f"has(self.uri) || has(self.pvc) || !(self.source in {cel_list(FILE_SOURCES)})",
            "this dataset.source is not on a hub: set dataset.uri or dataset.pvc to its file",
            lambda data: data.source not in FILE_SOURCES or bool(data.uri or data.pvc),
        ),
        ValidationRule(
            f"(!has(self.uri) && !has(self.pvc)) || !(self.source in {cel_list(GENERATED_SOURCES)})",
            "dataset.uri and dataset.pvc cannot be used with source mix (set them on its members) or sessions (it reads"
            " no file): remove them",
            lambda data: data.source not in GENERATED_SOURCES or not (data.uri or data.pvc),
        ),
        ValidationRule(
            _config_cel(),
            f"dataset.config is not valid for this source: remove it, or use one of: {_config_text()}",
            lambda data: data.config is None or data.config in CONFIGS.get(data.source, ()),
        ),
        ValidationRule(
            "!has(self.revision) || (!has(self.uri) && !has(self.pvc))",
            "dataset.revision is a revision on the hub: remove it when dataset.uri or dataset.pvc is set (the file is"
            " identified by its fingerprint)",
            lambda data: data.revision is None or not (data.uri or data.pvc),
        ),
        ValidationRule(
            f"!has(self.promptColumn) || self.source in {cel_list(OWN_SOURCES)}",
            "dataset.promptColumn is only valid with source jsonl, parquet or csv; others know their column: remove it",
            lambda data: data.prompt_column is None or data.source in OWN_SOURCES,
        ),
        ValidationRule(
            "!has(self.uri) || !has(self.pvc)",
            "dataset.uri and dataset.pvc both name the file: remove one",
            lambda data: data.uri is None or data.pvc is None,
        ),
        ValidationRule(
            "!has(self.entropy) || (self.source == 'speed-bench' && has(self.config)"
            " && self.config.startsWith('throughput_'))",
            "dataset.entropy needs source speed-bench and a throughput config: set dataset.config: throughput_8k, for"
            " example",
            lambda data: (
                data.entropy is None
                or (data.source is Source.SPEED_BENCH and (data.config or "").startswith("throughput_"))
            ),
        ),
        ValidationRule(
            "self.source == 'sessions' ? has(self.sessions) && has(self.count) : !has(self.sessions)",
            "source sessions needs dataset.sessions (turns, turnTokens, answerTokens) and dataset.count: set both; with"
            " another source, remove dataset.sessions",
            lambda data: (
                (data.sessions is not None and data.count is not None)
                if data.source is Source.SESSIONS
                else data.sessions is None
            ),
        ),
    )

    source: Source
    """The prompt source, such as `mt-bench` or `jsonl`; all: docs, "Workloads". jsonl, parquet and csv read your own
    columns: id, category, and one of prompt, turns, messages or token_ids."""
    config: Annotated[str, Field(min_length=1, max_length=64)] | None = None
    """Part or form of a source that has several: `throughput_8k`. Without it: the first in
    docs, "Workloads"."""
    uri: Annotated[str, Field(min_length=1, max_length=1024)] | None = None
    """The file: `s3://bucket/key`, `hf://datasets/OWNER/NAME/FILE`, or a path (relative to the spec with `specbench
    run`; on a cluster, below /usr/share/specbench in the client's image). Gzip is decompressed. Without it the prompts
    are fetched from the source's own hub, if it has one."""
    pvc: PvcFile | None = None
    """On a cluster, instead of uri: the file on a PersistentVolumeClaim."""
    revision: Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")] | None = None
    """Revision on the hub. Set a commit so that the prompts cannot change. Without it: the hub's default branch."""
    prompt_column: Annotated[str, Field(min_length=1, max_length=256)] | None = None
    """With source jsonl, parquet or csv: the column with the text of the prompt. Without it: `prompt`, or the name that
    other tools give it."""
    categories: Categories | None = None
    """Use only these categories: `[coding, math]`. Without it: all."""
    sub_categories: Categories | None = None
    """Use only these sub-categories (column sub_category). Without it: all."""
    entropy: Annotated[list[Entropy], Field(min_length=1, max_length=3), Distinct()] | None = None
    """Use only these tiers of SPEED-Bench's throughput configs. Without it: all."""
    difficulty: Categories | None = None
    """Use only these difficulties (column difficulty). Without it: all."""
    languages: Categories | None = None
    """Use only these languages (column language). Without it: all."""
    input_tokens: LengthRange | None = None
    """Use only prompts of this length: all messages sent for one prompt, in tokens of o200k_base. Without it: any
    length."""
    count: Annotated[int, Field(ge=1, le=PROMPTS_MAX)] | None = None
    """Number of prompts, spread evenly over the categories, in file order. Without it: all."""
    seed: Annotated[int, Field(ge=0, le=2147483647)] | None = None
    """Seed for drawing the prompts that count selects, for shuffling the choices of gpqa, and for the words of
    mooncake and sessions. Without it: the first prompts are taken (others: seed 0)."""
    allow_missing: bool | None = None
    """true: skip rows whose text is missing (SPEED-Bench's placeholders, log lines and sessions that cannot be sent
    again) and report their number with every result. Without it, one such row is an error."""
    sessions: Sessions | None = None
    """Source sessions: their lengths."""

    @property
    def form(self) -> str | None:
        """The effective config: the given one, or the source's default; None if the source has no configs."""
        return self.config or next(iter(CONFIGS.get(self.source, ())), None)

    @property
    def where(self) -> str:
        """The name for messages: the file's location, or the source if a hub serves it."""
        return self.uri or (self.pvc.mounted if self.pvc else str(self.source))


class Member(Selection):
    """One component of a mix: prompts of one source, with a weight."""

    rules: ClassVar = (
        *Selection.rules,
        ValidationRule(
            "self.source != 'mix'",
            "a member of a mix cannot be a mix: list its members here instead",
            lambda member: member.source is not Source.MIX,
        ),
    )

    name: Annotated[str, Field(min_length=1, max_length=32, pattern=r"^[a-z0-9]([a-z0-9_-]*[a-z0-9])?$")]
    """Category of these prompts in every table: `chat`."""
    weight: Annotated[int, Field(ge=1, le=1_000_000)]
    """Relative weight. The member's share of the conversations is its weight divided by the sum of all weights."""
    output_tokens: LengthRange | None = None
    """Expected length of the answers, in tokens. A median outside the range is reported with the results. Without it:
    not checked."""


class Dataset(Selection):
    """Which prompts to send. The same dataset and the same file select the same prompts everywhere."""

    rules: ClassVar = (
        *Selection.rules,
        ValidationRule(
            "(self.source == 'mix') == has(self.members)",
            "source mix needs dataset.members, and no other source takes it: set source: mix, or remove members",
            lambda dataset: (dataset.source is Source.MIX) == (dataset.members is not None),
        ),
        ValidationRule(
            "self.source != 'mix' || (!has(self.categories) && !has(self.subCategories) && !has(self.difficulty)"
            " && !has(self.languages) && !has(self.inputTokens) && !has(self.allowMissing)"
            " && !has(self.seed) && !has(self.revision))",
            "a mix itself takes only dataset.count: move filters, seed, revision and the other fields to its members",
            lambda dataset: (
                dataset.source is not Source.MIX
                or all(
                    each is None
                    for each in (
                        dataset.categories,
                        dataset.sub_categories,
                        dataset.difficulty,
                        dataset.languages,
                        dataset.input_tokens,
                        dataset.allow_missing,
                        dataset.seed,
                        dataset.revision,
                    )
                )
            ),
        ),
    )

    members: Annotated[list[Member], Field(min_length=1, max_length=16), KeyedBy("name")] | None = None
    """Source mix: its components."""

    def share_of(self, *sources: Source) -> float:
        """Return the share of the conversations that are from these sources."""
        if self.members is None:
            return float(self.source in sources)
        whole = sum(member.weight for member in self.members)
        return sum(member.weight for member in self.members if member.source in sources) / whole
