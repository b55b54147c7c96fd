"""How the text of each source is found by a row's `src_id`, and put into the row's template. Pure but for `Origins`.

Layouts and pins are those of SPEED-Bench's own preparation (NVIDIA/Model-Optimizer, examples/specdec_bench,
datasets/speed.py). Of the sources whose prompts are worded there and not in the row, those are resolved whose wording
is a sentence; pages of it are not taken from there: `REFUSED`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from string import ascii_uppercase

from specbench_client.dataset.speed_bench.few_shots import few_shot_prompts
from specbench_client.dataset.speed_bench.origins import Origin, Origins
from specbench_client.dataset.speed_bench.row import PLACEHOLDER, SpeedBenchRow, Unresolved, filled

CNN_DAILYMAIL = Origin("cnn_dailymail", "abisee/cnn_dailymail", "3.0.0")
HLE = Origin("hle", "cais/hle", revision="021a3d71f516a7ac28ceb8d284969902edf1edeb", gated=True)
CODE_CONTESTS = Origin("code_contests", "deepmind/code_contests", revision="802411c3010cb00d1b05bad57ca77365a3c699d6")
_LIVECODEBENCH_FILES = "hf://datasets/livecodebench/code_generation_lite@0fe84c3912ea0c4d4a78037083943e8f0c4dd505"
LIVECODEBENCH = Origin(
    "code_generation_lite",
    revision="0fe84c3912ea0c4d4a78037083943e8f0c4dd505",
    files=tuple(
        f"{_LIVECODEBENCH_FILES}/{name}.jsonl" for name in ("test", "test2", "test3", "test4", "test5", "test6")
    ),
)
MMLU_PRO = Origin("mmlu-pro", "TIGER-Lab/MMLU-Pro", revision="30527804ea8854662078e457808040d872ecdf29")
CHATRAG_REVISION = "af6c7d420ddddf21f54f8ab3394bbf462aad2577"
CHATRAG = tuple(
    Origin(f"chatrag-bench/{config}", "nvidia/ChatRAG-Bench", config, CHATRAG_REVISION)
    for config in ("hybridial", "sqa")
)
"""Both are one table, one after the other."""
OPUS_REVISION = "805090dc28bf78897da9641cdf08b61287580df9"
ROLES_REVISION = "a57ed54f9613921e4a5f1b63601a558cd5acf971"
ROLES = Origin(
    "rolebench/profiles-eng",
    revision=ROLES_REVISION,
    files=(f"hf://datasets/ZenMoore/RoleBench@{ROLES_REVISION}/profiles-eng/desc.json",),
)

_MULTIPLE_CHOICE = (
    "The following are multiple choice questions (with answers) about {subject}. Think step by step and then finish "
    'your answer with "the answer is (X)" where X is the correct letter choice.\n\n'
)
"""MMLU-Pro's own (arXiv 2406.01574)."""
_WITH_CONTEXT = (
    "Please give a full and complete answer for the questions. \n\nContext:\n{context}\n\nQuestion:\n{question}"
)
"""ChatRAG-Bench's, with the blank that SPEED-Bench has before the line's end."""

Resolve = Callable[[SpeedBenchRow, Origins], list[str]]


@dataclass(frozen=True, slots=True)
class Resolver:
    """`marker`: what a row's source holds. `resolve`: its turns; raises Unresolved."""

    name: str
    marker: str
    resolve: Resolve
    revision: str | None
    note: str = ""


def _cnn_dailymail(row: SpeedBenchRow, origins: Origins) -> list[str]:
    return [filled(row.template(), {"article": origins.by(CNN_DAILYMAIL, "id", row.src_id)["article"]})]


def _hle(row: SpeedBenchRow, origins: Origins) -> list[str]:
    return [str(origins.by(HLE, "id", row.src_id)["question"])]


def _livecodebench(row: SpeedBenchRow, origins: Origins) -> list[str]:
    found = origins.by(LIVECODEBENCH, "question_id", row.src_id)
    return [filled(row.template(), {"question": found["question_content"], "starter_code": found["starter_code"]})]


def _code_contests(row: SpeedBenchRow, origins: Origins) -> list[str]:
    return [filled(row.template(), {"question": origins.by(CODE_CONTESTS, "name", row.src_id)["description"]})]


def _opus_100(row: SpeedBenchRow, origins: Origins) -> list[str]:
    """`src_id`: anything, the pair of languages, the row's number, joined by underscores."""
    parts = row.src_id.split("_")
    if len(parts) != 3:
        raise Unresolved(f"its src_id {row.src_id!r} is not NAME_LANGUAGES_NUMBER")
    origin = Origin(f"opus-100/{parts[1]}", "Helsinki-NLP/opus-100", parts[1], OPUS_REVISION)
    return [filled(row.template(), {"question": origins.numbered(origin, parts[2])["translation"]})]


def _mt_bench_101(row: SpeedBenchRow, origins: Origins) -> list[str]:
    """`source` is the file's address. The user's side of the conversation, one turn each."""
    origin = Origin("mt-bench-101", files=(row.source,))
    return [str(turn["user"]) for turn in origins.numbered(origin, row.src_id.rsplit("_", 1)[-1])["history"]]


def _rolebench(row: SpeedBenchRow, origins: Origins) -> list[str]:
    """`src_id`: a name, the language's folder, then the number of each turn's row."""
    parts, numbers = row.src_id.split("_"), re.findall(r"_(\d+)", row.src_id)[: len(row.turns)]
    if len(parts) < 3 or not numbers:
        raise Unresolved(f"its src_id {row.src_id!r} is not NAME_FOLDER_NUMBER…")
    file = f"{row.source.replace('tree', 'raw')}/{parts[1]}/role_specific/test.jsonl"
    origin = Origin(f"rolebench/{parts[1]}", files=(file,))
    said = [origins.numbered(origin, number) for number in numbers]
    role = str(said[0]["role"])
    described = origins.records(ROLES).at(0).get(role)
    if described is None:
        raise Unresolved(f"{ROLES.folder} does not describe the role {role!r}: is it of another revision?")
    first = filled(row.template(), {"role_name": role, "role_description_and_catchphrases": described})
    further = [str(one["question"]).removeprefix(f"{role}, ").removeprefix(f" {role},") for one in said[1:]]
    return [f"{first}\n{said[0]['question']}", *further]


def _mmlu_pro(row: SpeedBenchRow, origins: Origins) -> list[str]:
    """`src_id` holds a pair, whose first number is the first turn's row; the other turns' rows follow."""
    found = re.search(r"\((\d+),", row.src_id)
    if found is None:
        raise Unresolved(f"its src_id {row.src_id!r} holds no pair of numbers")
    first = int(found[1])
    rows = [origins.numbered(MMLU_PRO, str(number)) for number in range(first, first + len(row.turns))]
    turns = [_choices(str(one["question"]), one["options"]) for one in rows]
    return [_MULTIPLE_CHOICE.format(subject=row.sub_category) + turns[0], *turns[1:]]


def _choices(question: str, options: Sequence[str]) -> str:
    told = "\n".join(f"({letter}) {option}" for letter, option in zip(ascii_uppercase, options, strict=False))
    return f"Question: {question}\n\nOptions: {told}\n\n"


def _chatrag(row: SpeedBenchRow, origins: Origins) -> list[str]:
    """`src_id` ends with the row's number."""
    number = row.src_id.rsplit("_", 1)[-1]
    first = origins.records(CHATRAG[0]).size
    beyond = number.isdecimal() and int(number) >= first
    held = origins.numbered(CHATRAG[1], str(int(number) - first)) if beyond else origins.numbered(CHATRAG[0], number)
    context = "\n\n".join(str(one["text"]) for one in held["ctxs"])
    questions = [str(one["content"]) for one in held["messages"] if one["role"] == "user"]
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

REFUSED = {
    "BAMBOO": "RUCAIBox/BAMBOO",
    "Ada-LEval (StackSelect)": "AdaLEval/stackselect",
    "Ada-LEval (TextSort)": "AdaLEval/textsort",
    "CoSER": "Neph0s/CoSER",
}
"""Source → marker, of those whose prompts are pages of SPEED-Bench's own program, and CoSER, whose characters stand in
the order in which the program's library happens to merge the rows of a file."""
INSTEAD = (
    "not resolved by this version, because the prompt cannot be made but by SPEED-Bench's own program: "
    "use its prepare_data.py (NVIDIA/Model-Optimizer, examples/specdec_bench); what that writes is read as it is"
)


def source_of(row: SpeedBenchRow) -> str:
    """The name of the row's source; the source itself where it is none that is known."""
    known = {resolver.name: resolver.marker for resolver in RESOLVERS} | REFUSED
    return next((name for name, marker in known.items() if marker in row.source), row.source)


@dataclass(frozen=True, slots=True)
class Set:
    """A config with all its rows in their order: some prompts depend on those before them."""

    config: str
    rows: Sequence[SpeedBenchRow]
    origins: Origins
    made: dict[str, str] = field(default_factory=dict)
    """HLE's prompts by question_id, once they were asked for."""

    def few_shots(self) -> Mapping[str, str]:
        """See `few_shots`. Raises Unresolved."""
        if not self.made:
            size = re.fullmatch(r"throughput_(\d+)k", self.config)
            if size is None:
                raise Unresolved(f"its config {self.config} tells no length")
            asked = [row for row in self.rows if _of_hle(row) and row.turns[0].startswith(PLACEHOLDER)]
            target, hle = int(size[1]) * 1000, self.origins.records(HLE)
            self.made.update(few_shot_prompts(asked, target, hle, self.origins.ruler()))
        return self.made


def _of_hle(row: SpeedBenchRow) -> bool:
    return "cais/hle" in row.source


def resolve(row: SpeedBenchRow, of: Set) -> list[str]:
    """The row's turns. Raises Unresolved."""
    if any(marker in row.source for marker in REFUSED.values()):
        raise Unresolved(INSTEAD)
    found = next((resolver for resolver in RESOLVERS if resolver.marker in row.source), None)
    if found is None:
        raise Unresolved(f"its source is none that this version knows: {row.source}")
    try:
        few_shots = found.resolve is _hle and of.config != "qualitative"
        turns = [of.few_shots()[row.question_id]] if few_shots else found.resolve(row, of.origins)
    except (KeyError, TypeError) as error:
        raise Unresolved(
            f"{found.name}: a row of it has no {error}: its layout is another than the pinned one's"
        ) from error
    if not all(turn.strip() for turn in turns):
        raise Unresolved(f"{found.name}: the text of {row.src_id} is empty")
    return turns
