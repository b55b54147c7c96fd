"""`spec.workloads[].dataset`: which prompts, declared.

What is declared is hashed with the point, so a field that is not given must stay not given: every field that came
later is optional, and its absence means what it meant before the field was there.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, ClassVar, Self

from pydantic import Field, model_validator

from specbench_api.model import ApiModel, Distinct, KeyedBy, Rule, refuse_broken
from specbench_api.spec.target import PvcModel


class Source(StrEnum):
    """Where prompts come from, and with it their file's shape. Each is described in docs/workloads.md."""

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
    MIX = "mix"
    RANDOM = "random"


class Entropy(StrEnum):
    """Tiers of SPEED-Bench's throughput configs: how hard the next token is to foresee."""

    LOW = "low"
    MIXED = "mixed"
    HIGH = "high"


OWN_FILES = (Source.JSONL, Source.PARQUET, Source.CSV, Source.SPEC_BENCH, Source.OPENAI_LOGS)
"""Sources that no hub serves: they need a `uri`."""
MADE = (Source.MIX, Source.RANDOM)
"""Sources that are made of something else than a file, and take no `uri`."""
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
"""What `config` may be, by source; the others have one form alone. The first is taken where none is given."""
PROMPTS_MAX = 1_000_000
PVC_FOLDER = "/prompts"
"""Where the clients' pods have the volumes of datasets, each below the name of its claim."""

Category = Annotated[str, Field(min_length=1, max_length=64)]
Categories = Annotated[list[Category], Field(min_length=1, max_length=64)]
Tokens = Annotated[int, Field(ge=1, le=10_000_000)]


def _cel_list(words: tuple[str, ...]) -> str:
    return "[" + ", ".join(f"'{word}'" for word in words) + "]"


def _config_cel() -> str:
    allowed = " || ".join(
        f"(self.source == '{source}' && self.config in {_cel_list(known)})" for source, known in CONFIGS.items()
    )
    return f"!has(self.config) || {allowed}"


def _config_words() -> str:
    return "; ".join(f"{source} has {', '.join(known)}" for source, known in CONFIGS.items())


class PvcFile(PvcModel):
    """A file on a PersistentVolumeClaim of the run's namespace; the clients' pods mount it, read only."""

    path: Annotated[str, Field(min_length=1, max_length=1024)]
    """Path of the file, or of the source's folder, inside the volume."""

    @property
    def mounted(self) -> str:
        """Its path in a client's pod."""
        return f"{PVC_FOLDER}/{self.claim_name}/{self.path.lstrip('/')}"


class Range(ApiModel):
    """A range of tokens, both ends included."""

    rules: ClassVar = (
        Rule("!has(self.min) || !has(self.max) || self.min <= self.max", "min is larger than max: exchange them"),
    )

    min: Tokens | None = None
    """At least so many."""
    max: Tokens | None = None
    """At most so many."""

    @model_validator(mode="after")
    def _coherent(self) -> Self:
        refuse_broken(self.rules, [self.min is None or self.max is None or self.min <= self.max])
        return self

    def holds(self, tokens: float) -> bool:
        """Whether so many are within."""
        return (self.min is None or tokens >= self.min) and (self.max is None or tokens <= self.max)


class Selection(ApiModel):
    """Prompts of one source: where they lie, and which of them."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            f"has(self.uri) || has(self.pvc) || !(self.source in {_cel_list(OWN_FILES)})",
            "this dataset.source needs dataset.uri or dataset.pvc: where the file lies; sources of a hub do without",
        ),
        Rule(
            f"(!has(self.uri) && !has(self.pvc)) || !(self.source in {_cel_list(MADE)})",
            "dataset.uri and dataset.pvc go with no mix (its members have theirs) and no random (it reads no file)",
        ),
        Rule(_config_cel(), f"dataset.config goes with some sources alone: {_config_words()}"),
        Rule(
            "!has(self.revision) || (!has(self.uri) && !has(self.pvc))",
            "dataset.revision is the hub's: a file of your own has none (its fingerprint tells it)",
        ),
        Rule("!has(self.uri) || !has(self.pvc)", "give one of dataset.uri and dataset.pvc"),
        Rule(
            "!has(self.entropy) || (self.source == 'speed-bench' && has(self.config)"
            " && self.config.startsWith('throughput_'))",
            "dataset.entropy is a tier of speed-bench's throughput configs: name one in dataset.config",
        ),
        Rule(
            "self.source == 'random' ? has(self.allowRandom) && self.allowRandom && has(self.count)"
            " : !has(self.allowRandom) && !has(self.words)",
            "dataset.allowRandom and dataset.words go with source random, which needs allowRandom: true and a count:"
            " random words mislead about speculative decoding, and every result says so",
        ),
        Rule(
            "!has(self.count) || !has(self.turns)",
            "give one of dataset.count (prompts) and dataset.turns (requests of one pass)",
        ),
    )

    source: Source
    """Whose prompts, see docs/workloads.md; jsonl, parquet and csv hold columns of your own: id, category, and prompt,
    turns, messages or token_ids."""
    config: Annotated[str, Field(min_length=1, max_length=64)] | None = None
    """Which part or form of a source that has several. Without it: the first that docs/workloads.md names."""
    uri: Annotated[str, Field(min_length=1, max_length=1024)] | None = None
    """The file: s3://bucket/key, hf://datasets/OWNER/NAME/FILE, or a path (beside the spec on this machine, in the
    client's image on a cluster). Gzip is unpacked. Without it the source's own hub is asked, where it has one."""
    pvc: PvcFile | None = None
    """Instead of uri, on a cluster: the file on a PersistentVolumeClaim."""
    revision: Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")] | None = None
    """Revision on the hub: a commit keeps what is measured from changing."""
    categories: Categories | None = None
    """Only these categories."""
    sub_categories: Categories | None = None
    """Only these sub-categories (column sub_category)."""
    entropy: Annotated[list[Entropy], Field(min_length=1, max_length=3), Distinct()] | None = None
    """Only these tiers of SPEED-Bench's throughput configs."""
    difficulty: Categories | None = None
    """Only these difficulties (column difficulty)."""
    languages: Categories | None = None
    """Only these languages (column language)."""
    input_tokens: Range | None = None
    """Only prompts that are so long: all messages that are sent for one, in tokens of o200k_base."""
    count: Annotated[int, Field(ge=1, le=PROMPTS_MAX)] | None = None
    """So many prompts, spread evenly over the categories, in the file's order. Without it: all of them."""
    turns: Annotated[int, Field(ge=1, le=PROMPTS_MAX)] | None = None
    """Instead of count: prompts with exactly so many turns together, spread alike. One turn is one request."""
    seed: Annotated[int, Field(ge=0, le=2147483647)] | None = None
    """Draws which prompts count or turns takes, and shuffles gpqa's choices. Without it: the first ones (gpqa: 0)."""
    allow_missing: bool | None = None
    """True leaves out rows whose text is missing (SPEED-Bench's placeholders, log lines that cannot be sent again), and
    every result tells how many. Without it one such row refuses them all."""
    allow_random: bool | None = None
    """True lets source random be measured at all; its results are never trustworthy."""
    words: Annotated[int, Field(ge=1, le=100_000)] | None = None
    """Source random: words a prompt. Without it: 256."""

    @property
    def form(self) -> str | None:
        """The config that counts: what was given, or the source's first; None where it has none."""
        return self.config or next(iter(CONFIGS.get(self.source, ())), None)

    @property
    def where(self) -> str:
        """What messages call it: where it lies, or the source where the hub serves it."""
        return self.uri or (self.pvc.mounted if self.pvc else str(self.source))

    @model_validator(mode="after")
    def _selects(self) -> Self:
        random = self.source is Source.RANDOM
        given = sum(place is not None for place in (self.uri, self.pvc))
        throughput = self.source is Source.SPEED_BENCH and (self.config or "").startswith("throughput_")
        holds = (
            given > 0 or self.source not in OWN_FILES,
            given == 0 or self.source not in MADE,
            self.config is None or self.config in CONFIGS.get(self.source, ()),
            self.revision is None or given == 0,
            given < 2,
            self.entropy is None or throughput,
            (self.allow_random is True and self.count is not None)
            if random
            else self.allow_random is None and self.words is None,
            self.count is None or self.turns is None,
        )
        refuse_broken(Selection.rules, holds)
        return self


class Member(Selection):
    """One of the kinds of request that a mix is made of."""

    rules: ClassVar = (
        *Selection.rules,
        Rule("self.source != 'mix'", "a mix holds no mix: name its members here"),
    )

    name: Annotated[str, Field(min_length=1, max_length=32, pattern=r"^[a-z0-9]([a-z0-9_-]*[a-z0-9])?$")]
    """Category of its prompts in every table."""
    weight: Annotated[int, Field(ge=1, le=1_000_000)]
    """Its share of the conversations is its weight over the sum of all weights."""
    output_tokens: Range | None = None
    """How long its answers are expected to be; a median outside is told with the results."""

    @model_validator(mode="after")
    def _plain(self) -> Self:
        refuse_broken(self.rules[-1:], [self.source is not Source.MIX])
        return self


class Dataset(Selection):
    """Which prompts, declared: the same declaration and the same file give the same prompts everywhere."""

    rules: ClassVar = (
        *Selection.rules,
        Rule(
            "(self.source == 'mix') == has(self.members)",
            "dataset.members goes with source mix, which needs it",
        ),
        Rule(
            "self.source != 'mix' || (!has(self.categories) && !has(self.subCategories) && !has(self.difficulty)"
            " && !has(self.languages) && !has(self.inputTokens) && !has(self.turns) && !has(self.allowMissing)"
            " && !has(self.seed) && !has(self.revision))",
            "of a mix itself only count is given; filters, seed and the rest stand in its members",
        ),
    )

    members: Annotated[list[Member], Field(min_length=1, max_length=16), KeyedBy("name")] | None = None
    """Source mix: what it is made of."""

    @model_validator(mode="after")
    def _coherent(self) -> Self:
        mixed = self.source is Source.MIX
        inner = (self.categories, self.sub_categories, self.difficulty, self.languages, self.input_tokens)
        others = (*inner, self.turns, self.allow_missing, self.seed, self.revision)
        holds = (mixed == (self.members is not None), not mixed or all(each is None for each in others))
        refuse_broken(self.rules[len(Selection.rules) :], holds)
        return self
