"""Resolves rows of SPEED-Bench: finds each text by the row's `src_id` and fills in the row's template.

Layouts and revisions are those of SPEED-Bench's own preparation (NVIDIA/Model-Optimizer, examples/specdec_bench,
datasets/speed.py). Where a prompt's wording is in that program and not in the row, it is reproduced if it is a
sentence. Sources with pages of wording are listed in `UNSUPPORTED_SOURCES`. Only `UpstreamTables` does I/O: it reads a
local folder first, then the hub at a pinned revision.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from string import ascii_uppercase
from typing import Any

import numpy as np

from specbench_api.errors import SpecbenchError
from specbench_api.spec.workload import Source
from specbench_client.bounded_json import parse_json
from specbench_client.dataset.tokenizers import load_reference_tokenizer
from specbench_client.errors import BadInput
from specbench_client.workload.prompt_files import read_rows
from specbench_client.workload.prompt_lengths import ReferenceTokenizer
from specbench_client.workload.row_parsing import PLACEHOLDER_TEXT

PLACEHOLDER = f"{PLACEHOLDER_TEXT} USING SPECDEC_BENCH"

SPEED_BENCH_COLUMNS = ("question_id", "category", "turns", "source", "src_id")


class Unresolved(SpecbenchError):
    """The row cannot be filled in; the message gives the reason and a remedy."""


@dataclass(frozen=True, slots=True)
class SpeedBenchRow:
    """One row. `columns` is the unchanged row of the file; the other fields are those needed to resolve it."""

    columns: Mapping[str, Any]
    question_id: str
    category: str
    sub_category: str
    turns: tuple[str, ...]
    source: str
    src_id: str

    @property
    def whole(self) -> bool:
        """Whether no turn is a placeholder."""
        return not any(turn.startswith(PLACEHOLDER) for turn in self.turns)

    def template(self) -> str:
        """Return the template after the first turn's placeholder. Raises Unresolved if there is none."""
        found = self.turns[0].removeprefix(PLACEHOLDER).removeprefix("\n\n")
        if not found.strip():
            raise Unresolved("its placeholder has no template: this version of SPEED-Bench is not supported")
        return found


def parse_row(columns: Mapping[str, Any], place: str) -> SpeedBenchRow:
    """Parse a row. Raises BadInput if it is not one of SPEED-Bench's."""
    missing = [name for name in SPEED_BENCH_COLUMNS if columns.get(name) is None]
    turns = columns.get("turns")
    if missing or not isinstance(turns, list) or not turns or not all(isinstance(turn, str) for turn in turns):
        problem = f"has no {missing[0]}" if missing else "has turns that are not a list of strings"
        raise BadInput(
            f"{place} {problem}: give SPEED-Bench's own files (nvidia/SPEED-Bench, split test), not prepared ones"
        )
    return SpeedBenchRow(
        columns=columns,
        question_id=str(columns["question_id"]),
        category=str(columns["category"]),
        sub_category=str(columns.get("sub_category") or ""),
        turns=tuple(turns),
        source=str(columns["source"]),
        src_id=str(columns["src_id"]),
    )


def fill_template(template: str, fields: Mapping[str, Any]) -> str:
    """Fill in a template. Raises Unresolved if it uses a field that is not given."""
    try:
        return template.format(**fields)
    except (KeyError, IndexError, ValueError, AttributeError, TypeError) as error:
        available = ", ".join(sorted(fields))
        raise Unresolved(f"its template uses {error}, but the source only has {available}") from error


@dataclass(frozen=True, slots=True)
class UpstreamTable:
    """A table of a source: a dataset on the hub, or `files` (addresses that the `datasets` library opens).

    `folder`: its name below `--sources`, for machines without access to the hub. `revision` is None if the publisher
    pins none.
    """

    folder: str
    hub: str | None = None
    config: str | None = None
    revision: str | None = None
    files: tuple[str, ...] = ()
    gated: bool = False


@dataclass(frozen=True, slots=True)
class UpstreamRecords:
    """Access to a table's rows by number and columns by name, independent of its storage."""

    size: int
    at: Callable[[int], Mapping[str, Any]]
    column: Callable[[str], Sequence[Any]]


def in_memory_records(rows: Sequence[Mapping[str, Any]]) -> UpstreamRecords:
    """Wrap rows that are in memory."""
    return UpstreamRecords(len(rows), rows.__getitem__, lambda name: [row.get(name) for row in rows])


class UpstreamTables:
    """Loads each table once. A failed load is remembered and reported for every row that needs the table."""

    def __init__(self, sources: Path | None = None, table: Path | None = None) -> None:
        self._sources = sources
        self._table = table
        self._loaded: dict[UpstreamTable, UpstreamRecords] = {}
        self._failed: dict[UpstreamTable, str] = {}
        self._places: dict[tuple[UpstreamTable, str], dict[Any, int]] = {}

    def records(self, origin: UpstreamTable) -> UpstreamRecords:
        """Return the table. Raises Unresolved with a remedy if it cannot be loaded."""
        if origin in self._failed:
            raise Unresolved(self._failed[origin])
        if origin not in self._loaded:
            try:
                self._loaded[origin] = self._load(origin)
            except Unresolved as error:
                self._failed[origin] = str(error)
                raise
        return self._loaded[origin]

    def by(self, origin: UpstreamTable, column: str, value: str) -> Mapping[str, Any]:
        """Return the first row with this value. Raises Unresolved if there is none."""
        records = self.records(origin)
        if (origin, column) not in self._places:
            values = list(records.column(column))
            self._places[origin, column] = {values[row]: row for row in reversed(range(len(values)))}
        places = self._places[origin, column]
        if value not in places:
            raise Unresolved(
                f"{origin.folder} has no row whose {column} is {value!r}: check that it is the right revision"
            )
        return records.at(places[value])

    def ruler(self) -> ReferenceTokenizer:
        """Return the tokenizer that measures lengths. Raises Unresolved with a remedy if its table is missing."""
        try:
            return load_reference_tokenizer(self._table)
        except BadInput as error:
            raise Unresolved(str(error)) from error

    def numbered(self, origin: UpstreamTable, number: str) -> Mapping[str, Any]:
        """Return the row with this number, starting at 0. Raises Unresolved if there is none."""
        records = self.records(origin)
        if not number.isdecimal() or int(number) >= records.size:
            raise Unresolved(
                f"{origin.folder} has {records.size:,} rows, so no row {number}: check that it is the right revision"
            )
        return records.at(int(number))

    def _load(self, origin: UpstreamTable) -> UpstreamRecords:
        folder = self._sources / origin.folder if self._sources else None
        if folder and folder.is_dir():
            return _local_records(folder)
        return _hub_records(origin)


def _local_records(folder: Path) -> UpstreamRecords:
    """Read all Parquet, JSON Lines and JSON files of a folder, in order of their names."""
    files = sorted([*folder.rglob("*.parquet"), *folder.rglob("*.jsonl"), *folder.rglob("*.json")])
    rows = [row for file in files for row in _rows_of_file(file)]
    if not rows:
        raise Unresolved(f"{folder} contains no .parquet, .jsonl or .json file")
    return in_memory_records(rows)


def _rows_of_file(file: Path) -> list[Mapping[str, Any]]:
    """Read a file's rows. A JSON document is a list of rows, or one row."""
    try:
        if file.suffix != ".json":
            return [
                row.columns for row in read_rows(file, Source.PARQUET if file.suffix == ".parquet" else Source.JSONL)
            ]
        document = parse_json(file.read_text(encoding="utf-8"))
    except BadInput as error:
        raise Unresolved(str(error)) from error
    except (OSError, ValueError) as error:
        raise Unresolved(f"{file}: cannot be read as JSON: {error}") from error
    return list(document) if isinstance(document, list) else [document]


def _hub_records(origin: UpstreamTable) -> UpstreamRecords:
    import datasets  # noqa: PLC0415  importing it takes two seconds

    try:
        if origin.files:
            found = datasets.load_dataset("json", data_files={"test": list(origin.files)}, split="test")
        else:
            found = datasets.load_dataset(origin.hub, origin.config, split="test", revision=origin.revision)
    except Exception as error:  # the hub's client raises errors of several HTTP libraries
        raise Unresolved(_load_error(origin, error)) from error
    return UpstreamRecords(len(found), found.__getitem__, lambda name: found[name])


def _load_error(origin: UpstreamTable, error: Exception) -> str:
    name = origin.hub or origin.files[0]
    reason = str(error).strip().split("\n")[0][:300] or type(error).__name__
    alternative = f"or put its files into {origin.folder}/ in the folder given with --sources"
    if origin.gated:
        remedy = f"it is gated: request access on its hub page, log in (hf auth login, or HF_TOKEN), {alternative}"
        return f"{name} cannot be loaded ({reason}): {remedy}"
    return f"{name} cannot be loaded ({reason}): run this on a machine that can reach it, {alternative}"


CNN_DAILYMAIL = UpstreamTable("cnn_dailymail", "abisee/cnn_dailymail", "3.0.0")

HLE = UpstreamTable("hle", "cais/hle", revision="021a3d71f516a7ac28ceb8d284969902edf1edeb", gated=True)

CODE_CONTESTS = UpstreamTable(
    "code_contests", "deepmind/code_contests", revision="802411c3010cb00d1b05bad57ca77365a3c699d6"
)

_LIVECODEBENCH_FILES = "hf://datasets/livecodebench/code_generation_lite@0fe84c3912ea0c4d4a78037083943e8f0c4dd505"

LIVECODEBENCH = UpstreamTable(
    "code_generation_lite",
    revision="0fe84c3912ea0c4d4a78037083943e8f0c4dd505",
    files=tuple(
        f"{_LIVECODEBENCH_FILES}/{name}.jsonl" for name in ("test", "test2", "test3", "test4", "test5", "test6")
    ),
)

MMLU_PRO = UpstreamTable("mmlu-pro", "TIGER-Lab/MMLU-Pro", revision="30527804ea8854662078e457808040d872ecdf29")

CHATRAG_REVISION = "af6c7d420ddddf21f54f8ab3394bbf462aad2577"

CHATRAG = tuple(
    UpstreamTable(f"chatrag-bench/{config}", "nvidia/ChatRAG-Bench", config, CHATRAG_REVISION)
    for config in ("hybridial", "sqa")
)
"""The two are one table, one after the other."""

OPUS_REVISION = "805090dc28bf78897da9641cdf08b61287580df9"

ROLES_REVISION = "a57ed54f9613921e4a5f1b63601a558cd5acf971"

ROLES = UpstreamTable(
    "rolebench/profiles-eng",
    revision=ROLES_REVISION,
    files=(f"hf://datasets/ZenMoore/RoleBench@{ROLES_REVISION}/profiles-eng/desc.json",),
)

_MULTIPLE_CHOICE = (
    "The following are multiple choice questions (with answers) about {subject}. Think step by step and then finish "
    'your answer with "the answer is (X)" where X is the correct letter choice.\n\n'
)
"""MMLU-Pro's own prompt (arXiv 2406.01574)."""

_WITH_CONTEXT = (
    "Please give a full and complete answer for the questions. \n\nContext:\n{context}\n\nQuestion:\n{question}"
)
"""ChatRAG-Bench's prompt, with the space that SPEED-Bench has before the line end."""

Resolve = Callable[[SpeedBenchRow, UpstreamTables], list[str]]


@dataclass(frozen=True, slots=True)
class Resolver:
    """Resolves rows whose source contains `marker`; `resolve` returns the turns or raises Unresolved."""

    name: str
    marker: str
    resolve: Resolve
    revision: str | None
    note: str = ""


def _cnn_dailymail(row: SpeedBenchRow, origins: UpstreamTables) -> list[str]:
    return [fill_template(row.template(), {"article": origins.by(CNN_DAILYMAIL, "id", row.src_id)["article"]})]


def _hle(row: SpeedBenchRow, origins: UpstreamTables) -> list[str]:
    return [str(origins.by(HLE, "id", row.src_id)["question"])]


def _livecodebench(row: SpeedBenchRow, origins: UpstreamTables) -> list[str]:
    found = origins.by(LIVECODEBENCH, "question_id", row.src_id)
    return [
        fill_template(row.template(), {"question": found["question_content"], "starter_code": found["starter_code"]})
    ]


def _code_contests(row: SpeedBenchRow, origins: UpstreamTables) -> list[str]:
    return [fill_template(row.template(), {"question": origins.by(CODE_CONTESTS, "name", row.src_id)["description"]})]


def _opus_100(row: SpeedBenchRow, origins: UpstreamTables) -> list[str]:
    """Resolve an OPUS-100 row; `src_id` is NAME_LANGUAGES_NUMBER."""
    parts = row.src_id.split("_")
    if len(parts) != 3:
        raise Unresolved(f"its src_id {row.src_id!r} is not NAME_LANGUAGES_NUMBER")
    origin = UpstreamTable(f"opus-100/{parts[1]}", "Helsinki-NLP/opus-100", parts[1], OPUS_REVISION)
    return [fill_template(row.template(), {"question": origins.numbered(origin, parts[2])["translation"]})]


def _mt_bench_101(row: SpeedBenchRow, origins: UpstreamTables) -> list[str]:
    """Resolve an MT-Bench-101 row; `source` is the file's address. Each user message is one turn."""
    origin = UpstreamTable("mt-bench-101", files=(row.source,))
    return [str(turn["user"]) for turn in origins.numbered(origin, row.src_id.rsplit("_", 1)[-1])["history"]]


def _rolebench(row: SpeedBenchRow, origins: UpstreamTables) -> list[str]:
    """Resolve a RoleBench row; `src_id` is NAME_FOLDER and the row number of each turn."""
    parts, numbers = row.src_id.split("_"), re.findall(r"_(\d+)", row.src_id)[: len(row.turns)]
    if len(parts) < 3 or not numbers:
        raise Unresolved(f"its src_id {row.src_id!r} is not NAME_FOLDER_NUMBER…")
    file = f"{row.source.replace('tree', 'raw')}/{parts[1]}/role_specific/test.jsonl"
    origin = UpstreamTable(f"rolebench/{parts[1]}", files=(file,))
    questions = [origins.numbered(origin, number) for number in numbers]
    role = str(questions[0]["role"])
    description = origins.records(ROLES).at(0).get(role)
    if description is None:
        raise Unresolved(f"{ROLES.folder} does not describe the role {role!r}: check that it is the right revision")
    first = fill_template(row.template(), {"role_name": role, "role_description_and_catchphrases": description})
    further = [str(one["question"]).removeprefix(f"{role}, ").removeprefix(f" {role},") for one in questions[1:]]
    return [f"{first}\n{questions[0]['question']}", *further]


def _mmlu_pro(row: SpeedBenchRow, origins: UpstreamTables) -> list[str]:
    """Resolve an MMLU-Pro row; `src_id` contains a pair whose first number is the first turn's row; others follow."""
    found = re.search(r"\((\d+),", row.src_id)
    if found is None:
        raise Unresolved(f"its src_id {row.src_id!r} contains no pair of numbers")
    first = int(found[1])
    rows = [origins.numbered(MMLU_PRO, str(number)) for number in range(first, first + len(row.turns))]
    turns = [_choices(str(one["question"]), one["options"]) for one in rows]
    return [_MULTIPLE_CHOICE.format(subject=row.sub_category) + turns[0], *turns[1:]]


def _choices(question: str, options: Sequence[str]) -> str:
    listed = "\n".join(f"({letter}) {option}" for letter, option in zip(ascii_uppercase, options, strict=False))
    return f"Question: {question}\n\nOptions: {listed}\n\n"


def _chatrag(row: SpeedBenchRow, origins: UpstreamTables) -> list[str]:
    """Resolve a ChatRAG-Bench row; `src_id` ends with the row's number."""
    number = row.src_id.rsplit("_", 1)[-1]
    first = origins.records(CHATRAG[0]).size
    beyond = number.isdecimal() and int(number) >= first
    record = origins.numbered(CHATRAG[1], str(int(number) - first)) if beyond else origins.numbered(CHATRAG[0], number)
    context = "\n\n".join(str(one["text"]) for one in record["ctxs"])
    questions = [str(one["content"]) for one in record["messages"] if one["role"] == "user"]
    if not questions:
        raise Unresolved(f"ChatRAG-Bench: {row.src_id} has no question")
    return [_WITH_CONTEXT.format(context=context, question=questions[0]), *questions[1:]]


_NO_PIN = "its publisher's own preparation pins no revision"

RESOLVERS = (
    Resolver("MMLU-Pro", "TIGER-Lab/MMLU-Pro", _mmlu_pro, MMLU_PRO.revision),
    Resolver("ChatRAG-Bench", "nvidia/ChatRAG-Bench", _chatrag, CHATRAG_REVISION),
    Resolver("CNN/DailyMail", "abisee/cnn_dailymail", _cnn_dailymail, None, _NO_PIN),
    Resolver("HLE", "cais/hle", _hle, HLE.revision, "gated"),
    Resolver("LiveCodeBench", "livecodebench/code_generation_lite", _livecodebench, LIVECODEBENCH.revision),
    Resolver("CodeContests", "deepmind/code_contests", _code_contests, CODE_CONTESTS.revision),
    Resolver("OPUS-100", "Helsinki-NLP/opus-100", _opus_100, OPUS_REVISION),
    Resolver("MT-Bench-101", "mtbench101/mt-bench-101", _mt_bench_101, None, "the row's source names the revision"),
    Resolver(
        "RoleBench", "ZenMoore/RoleBench", _rolebench, ROLES_REVISION, "questions: the row's source names the revision"
    ),
)

UNSUPPORTED_SOURCES = {
    "BAMBOO": "RUCAIBox/BAMBOO",
    "Ada-LEval (StackSelect)": "AdaLEval/stackselect",
    "Ada-LEval (TextSort)": "AdaLEval/textsort",
    "CoSER": "Neph0s/CoSER",
}
"""Markers of sources that cannot be resolved here: their prompts are pages of text in SPEED-Bench's own program, or
(CoSER) the order of characters depends on how the program's library merges the rows of a file."""

UNSUPPORTED_REMEDY = (
    "not supported, because only SPEED-Bench's own program can build the prompt: run its prepare_data.py "
    "(NVIDIA/Model-Optimizer, examples/specdec_bench); specbench reads the files that it writes"
)


def source_name(row: SpeedBenchRow) -> str:
    """Return the name of the row's source, or the source itself if it is unknown."""
    known = {resolver.name: resolver.marker for resolver in RESOLVERS} | UNSUPPORTED_SOURCES
    return next((name for name, marker in known.items() if marker in row.source), row.source)


@dataclass(frozen=True, slots=True)
class ConfigRows:
    """A config with all its rows in order, because some prompts depend on the rows before them."""

    config: str
    rows: Sequence[SpeedBenchRow]
    origins: UpstreamTables
    hle_prompts: dict[str, str] = field(default_factory=dict)
    """HLE's prompts by question_id, built on first use."""

    def few_shots(self) -> Mapping[str, str]:
        """Return HLE's prompts (see `few_shot_prompts`). Raises Unresolved."""
        if not self.hle_prompts:
            size = re.fullmatch(r"throughput_(\d+)k", self.config)
            if size is None:
                raise Unresolved(f"its config {self.config} does not name a length")
            missing = [row for row in self.rows if "cais/hle" in row.source and row.turns[0].startswith(PLACEHOLDER)]
            target, hle = int(size[1]) * 1000, self.origins.records(HLE)
            self.hle_prompts.update(few_shot_prompts(missing, target, hle, self.origins.ruler()))
        return self.hle_prompts


def resolve_row(row: SpeedBenchRow, config_rows: ConfigRows) -> list[str]:
    """Return the row's turns with their text. Raises Unresolved."""
    if any(marker in row.source for marker in UNSUPPORTED_SOURCES.values()):
        raise Unresolved(UNSUPPORTED_REMEDY)
    found = next((resolver for resolver in RESOLVERS if resolver.marker in row.source), None)
    if found is None:
        raise Unresolved(f"its source is not supported by this version: {row.source}")
    try:
        few_shots = found.resolve is _hle and config_rows.config != "qualitative"
        turns = [config_rows.few_shots()[row.question_id]] if few_shots else found.resolve(row, config_rows.origins)
    except (KeyError, TypeError) as error:
        raise Unresolved(
            f"{found.name}: a row has no {error}: its layout differs from that of the pinned revision"
        ) from error
    if not all(turn.strip() for turn in turns):
        raise Unresolved(f"{found.name}: the text of {row.src_id} is empty")
    return turns


# In the throughput configs, an HLE prompt is a question after as many solved questions as the prompt's length requires.
# The solved ones are drawn by one random generator over all such rows in the dataset's order, so all prompts are built
# together. Split, draws and cut are those of SPEED-Bench's own preparation: one half of HLE provides the questions, and
# the questions without an image in the other half are the solved examples.

SEED = 42

_OPENING = (
    "Please answer the question below.\n\n"
    "Here are some examples of question and answer pairs in the category of {category}:\n\n"
)


def few_shot_prompts(
    rows: Sequence[SpeedBenchRow], target: int, hle: UpstreamRecords, ruler: ReferenceTokenizer
) -> dict[str, str]:
    """Build prompts by question_id for rows in the dataset's order; `target`: o200k_base tokens. Raises Unresolved."""
    examples, questions = _halves(hle)
    solved = _solved(examples, ruler)
    by_id = {row["id"]: row for row in questions}
    draws = np.random.default_rng(SEED)
    found = {}
    for row in rows:
        if row.src_id not in by_id:
            raise Unresolved(f"hle has no question with the id {row.src_id!r}: check that it is the right revision")
        question = by_id[row.src_id]
        found[row.question_id] = _prompt(question, solved[question["category"]], target, ruler, draws)
    return found


def _halves(hle: UpstreamRecords) -> tuple[list[Mapping[str, Any]], list[Mapping[str, Any]]]:
    """Split HLE with the `datasets` library's train_test_split; return (examples, questions)."""
    import datasets  # noqa: PLC0415  importing it takes two seconds

    places = datasets.Dataset.from_dict({"place": list(range(hle.size))})
    halves = places.train_test_split(test_size=0.5, shuffle=True, seed=SEED)
    examples, questions = ([hle.at(place) for place in halves[half]["place"]] for half in ("train", "test"))
    return examples, questions


def _solved(examples: Sequence[Mapping[str, Any]], ruler: ReferenceTokenizer) -> Mapping[str, list[list[int]]]:
    """Return, by category, the tokens of every question with its explained answer."""
    found: defaultdict[str, list[list[int]]] = defaultdict(list)
    for row in examples:
        if row["image"] == "":
            text = f"Question: {row['question']}\n\nAnswer: {row['rationale']}\n\n"
            found[row["category"]].append(ruler.encode_ordinary(text))
    return found


def _prompt(
    question: Mapping[str, Any],
    solved: list[list[int]],
    target: int,
    ruler: ReferenceTokenizer,
    draws: np.random.Generator,
) -> str:
    """Build one prompt; the examples are cut before the question. One token longer than `target`, as published."""
    last = ruler.encode_ordinary(question["question"])
    tokens = ruler.encode_ordinary(_OPENING.format(category=question["category"]))
    while len(tokens) + len(last) < target:
        if not solved:
            raise Unresolved(f"hle has no solved question of category {question['category']!r}: is it complete?")
        tokens += solved[int(draws.choice(len(solved), size=1, replace=False)[0])]
    return ruler.decode_bytes(tokens[: target - len(last) + 1] + last).decode("utf-8", errors="replace")
