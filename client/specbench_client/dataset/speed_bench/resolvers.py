"""How the text of each source is found by a row's `src_id`, and put into the row's template. Pure but for `Origins`.

Layouts and pins are those of SPEED-Bench's own preparation (NVIDIA/Model-Optimizer, examples/specdec_bench,
datasets/speed.py). A source whose prompt is worded in that program and not in the row is not resolved here: `refusals`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from specbench_client.dataset.speed_bench.origins import Origin, Origins
from specbench_client.dataset.speed_bench.row import SpeedBenchRow, Unresolved, filled

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
OPUS_REVISION = "805090dc28bf78897da9641cdf08b61287580df9"
ROLES_REVISION = "a57ed54f9613921e4a5f1b63601a558cd5acf971"
ROLES = Origin(
    "rolebench/profiles-eng",
    revision=ROLES_REVISION,
    files=(f"hf://datasets/ZenMoore/RoleBench@{ROLES_REVISION}/profiles-eng/desc.json",),
)

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


_NO_PIN = "its publisher's own preparation pins no revision"
RESOLVERS = (
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
    "ChatRAG-Bench": "nvidia/ChatRAG-Bench",
    "MMLU-Pro": "TIGER-Lab/MMLU-Pro",
    "Ada-LEval (StackSelect)": "AdaLEval/stackselect",
    "Ada-LEval (TextSort)": "AdaLEval/textsort",
    "CoSER": "Neph0s/CoSER",
}
"""Source → marker, of those whose prompts are worded in SPEED-Bench's own program and not in its rows."""
INSTEAD = (
    "not resolved by this version, because the prompt's wording is part of SPEED-Bench's own program: "
    "use its prepare_data.py (NVIDIA/Model-Optimizer, examples/specdec_bench); what that writes is read as it is"
)


def source_of(row: SpeedBenchRow) -> str:
    """The name of the row's source; the source itself where it is none that is known."""
    known = {resolver.name: resolver.marker for resolver in RESOLVERS} | REFUSED
    return next((name for name, marker in known.items() if marker in row.source), row.source)


def resolve(row: SpeedBenchRow, config: str, origins: Origins) -> list[str]:
    """The row's turns. Raises Unresolved."""
    if any(marker in row.source for marker in REFUSED.values()):
        raise Unresolved(INSTEAD)
    found = next((resolver for resolver in RESOLVERS if resolver.marker in row.source), None)
    if found is None:
        raise Unresolved(f"its source is none that this version knows: {row.source}")
    if (
        found.resolve is _hle and config != "qualitative"
    ):  # few-shot examples drawn by that program, with its words around
        raise Unresolved(INSTEAD)
    try:
        turns = found.resolve(row, origins)
    except (KeyError, TypeError) as error:
        raise Unresolved(
            f"{found.name}: a row of it has no {error}: its layout is another than the pinned one's"
        ) from error
    if not all(turn.strip() for turn in turns):
        raise Unresolved(f"{found.name}: the text of {row.src_id} is empty")
    return turns
