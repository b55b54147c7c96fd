"""Published data sets: questions and conversations, and tasks with a known answer (mathematics, choices, code)."""

from __future__ import annotations

import hashlib
import re
from itertools import takewhile
from typing import Any

from specbench_api.spec.dataset import Selection
from specbench_client.bounded_json import parse_json
from specbench_client.workload.prompt_files import PromptRow
from specbench_client.workload.row_parsing import EXPECTED, BadRow, RowExcluded, role_of
from specbench_client.workload.row_shapes import messages_of, row_id
from specbench_client.workload.sources.loader import (
    CONFIG,
    Columns,
    HubDataset,
    SourceLoader,
    key_at,
    label_at,
    quoted,
    single_turn_columns,
    text_at,
)

_TURNS = 2


def _mt_bench_columns(row: PromptRow, _: Selection) -> Columns:
    columns = row.columns
    turns = columns.get("prompt") if columns.get("turns") is None else columns["turns"]
    if not isinstance(turns, list):
        raise BadRow("neither prompt nor turns is a list: a row of MT-Bench has a list of two messages in one of them")
    if len(turns) != _TURNS:
        raise BadRow(f"has {len(turns)} turns, but every question of MT-Bench has {_TURNS}: the row is incomplete")
    return {"id": key_at(row, "prompt_id", "question_id"), "category": columns.get("category"), "turns": turns}


MT_BENCH = SourceLoader(
    what="MT-Bench: 80 questions in eight categories, two turns each",
    columns=("prompt | turns", "category"),
    template="both turns unchanged, with the model's own answer between them",
    licence="Apache-2.0",
    convert=_mt_bench_columns,
    hub=HubDataset("HuggingFaceH4/mt_bench_prompts", "train"),
    note="FastChat's question.jsonl is read as well. vLLM's benchmark of the same name sends only the first turn",
)


def _spec_bench_columns(row: PromptRow, _: Selection) -> Columns:
    """Convert a row in FastChat's format (question_id, category, turns) to our columns. Raises BadRow."""
    columns = row.columns
    if columns.get("question_id") is None:
        raise BadRow("the column question_id is missing: every row of Spec-Bench has a unique one")
    if columns.get("turns") is None:
        raise BadRow('the column turns is missing: give the list of user messages, such as ["…", "…"]')
    return {
        "id": columns["question_id"],
        "category": columns.get("category"),
        "sub_category": columns.get("sub_category"),
        "turns": columns["turns"],
    }


SPEC_BENCH = SourceLoader(
    what="Spec-Bench: 480 questions in 13 categories, 80 of them with two turns",
    columns=("question_id", "category", "turns"),
    template="turns unchanged",
    licence="Apache-2.0 (its parts: WMT14, CNN/DailyMail, Natural Questions, GSM8K, MT-Bench)",
    convert=_spec_bench_columns,
    note="`data/spec_bench/question.jsonl` of github.com/hemingkx/Spec-Bench; its multilingual part repeats one"
    " sentence frame, and all but five of its categories have ten prompts each",
)


def _speed_bench_columns(row: PromptRow, _: Selection) -> Columns:
    """Convert a row of NVIDIA's prepared Parquet files, or of the JSON Lines that NeMo-Skills converts them to.

    Rows whose text may not be redistributed contain placeholders until `specbench dataset prepare` resolves them; until
    then `row_outcomes` rejects them. A row of config agentic is a whole trajectory: each assistant message becomes
    one request, sent with all recorded messages before it and with the tools in the row's `extras`.
    """
    columns = row.columns
    if columns.get("question_id") is None:
        raise BadRow("the column question_id is missing: every row of SPEED-Bench has one")
    labels: Columns = {
        "id": columns["question_id"],
        "category": columns.get("category"),
        "sub_category": label_at(row, "sub_category"),
        "difficulty": label_at(row, "difficulty"),
        "language": label_at(row, "language"),
        "origin": label_at(row, "source"),
    }
    if columns.get("turns") is None and columns.get("messages") is None:
        raise BadRow(
            "neither turns (prepared Parquet) nor messages (NeMo-Skills) is present: prepare the dataset again"
        )
    if columns.get("turns") is not None:
        return _with_turns(columns["turns"], _tools(columns.get("extras")), labels)
    return {**labels, "turns": _user_turns(columns["messages"])}


def _with_turns(turns: Any, tools: Any, labels: Columns) -> Columns:
    """Add the turns: strings, or for config agentic the messages of one request (see `_steps`)."""
    if _is_trajectory(turns):
        return {**labels, "messages": turns, "tools": tools}
    return {**labels, "turns": turns}


def _is_trajectory(turns: Any) -> bool:
    return isinstance(turns, list) and bool(turns) and all(isinstance(turn, dict) for turn in turns)


def _steps(row: PromptRow) -> list[PromptRow]:
    """Split a trajectory into requests: one up to each assistant message, and all of it if another role ends it."""
    turns: Any = row.columns.get("turns")
    if not _is_trajectory(turns) or row.columns.get("question_id") is None:
        return [row]
    roles = [turn.get("role") for turn in turns]
    ends = [place for place, role in enumerate(roles) if role == "assistant" and place > 0]
    ends += [len(turns)] if roles[-1] != "assistant" else []
    key = row.columns["question_id"]
    return [
        PromptRow(row.place, {**row.columns, "question_id": f"{key}/step-{number}", "turns": turns[:end]})
        for number, end in enumerate(ends, start=1)
    ]


def _tools(extras: Any) -> Any:
    try:
        parsed = parse_json(extras) if isinstance(extras, str) else extras
    except (ValueError, RecursionError) as error:
        raise BadRow(f"extras is not valid JSON: {error}") from error
    return parsed.get("tools") if isinstance(parsed, dict) else None


def _user_turns(messages: Any) -> Any:
    """Return the contents of user messages. NeMo-Skills stores the turns of the user without answers."""
    is_list = isinstance(messages, list) and messages and all(isinstance(message, dict) for message in messages)
    if not is_list or any(message.get("role") != "user" for message in messages):
        raise BadRow("messages is not a list of user messages, which is all that NeMo-Skills' files contain")
    return [message.get("content") for message in messages]


SPEED_BENCH = SourceLoader(
    what="SPEED-Bench: 880 diverse prompts (qualitative); 1,536 per length in three entropy tiers (throughput)",
    columns=("question_id", "category", "turns | messages"),
    template="turns unchanged, in order, with the model's own answers between them",
    licence="NVIDIA Evaluation Dataset License; its parts have their own",
    convert=_speed_bench_columns,
    hub=HubDataset("nvidia/SPEED-Bench", "test", CONFIG),
    note="about half of the rows are placeholders until `specbench dataset prepare` resolves them; agentic: each"
    " assistant message of a trajectory is one request, with everything recorded before it; tool calls need"
    " `chatTemplate.appliedBy: Client`",
    files=(f"{CONFIG}/test.parquet", f"{CONFIG}.jsonl", f"{CONFIG}.parquet"),
    split=_steps,
)


_LEAST_MESSAGES = 2
_FILE = "ShareGPT_V3_unfiltered_cleaned_split.json"


def _sharegpt_columns(row: PromptRow, _: Selection) -> Columns:
    found = messages_of(row.columns)
    if not found and row.columns.get("conversations") != []:
        raise BadRow(
            "the column conversations is missing, or no list of messages: a row of ShareGPT has one, such as"
            ' [{"from": "human", "value": "…"}, {"from": "gpt", "value": "…"}]'
        )
    systems = list(takewhile(lambda one: role_of(one) in ("system", "developer"), found))
    said = found[len(systems) :]
    if len(said) < _LEAST_MESSAGES:
        raise RowExcluded("fewer than two messages")
    if role_of(said[0]) != "user":
        raise RowExcluded("does not begin with a user's message")
    text = said[0].get("content", said[0].get("value"))
    if isinstance(text, str) and not text.strip():
        raise RowExcluded("begins with an empty message")
    return {"id": row_id(row, row.columns), "category": "chat", "messages": [*systems, said[0]]}


SHAREGPT = SourceLoader(
    what="ShareGPT: first messages of real conversations (about 94,000)",
    columns=("id", "conversations"),
    template="the first message of the user alone, with the system message before it",
    licence="Apache-2.0 according to its uploader; the text belongs to its users",
    convert=_sharegpt_columns,
    hub=HubDataset("anon8231489123/ShareGPT_Vicuna_unfiltered", "train", file=_FILE),
    note="rows with fewer than two messages, or whose first is not from the user, are left out and counted; read as"
    " `jsonl`, each is sent with its history up to the last question;"
    " for the usual lengths add `inputTokens: {min: 4, max: 1024}`. EAGLE heads were trained on it, which inflates"
    " acceptance",
)


_INSTRUCTION = "Could you summarize the following article, please reuse text from the article if possible: "


CNN_DAILYMAIL = SourceLoader(
    what="CNN/DailyMail 3.0.0: articles to summarise (test: 11,490)",
    columns=("article",),
    template=f"`{_INSTRUCTION}{{article}}`",
    licence="Apache-2.0 according to its card; the articles belong to their publishers",
    convert=lambda row, _: single_turn_columns(
        _INSTRUCTION + text_at(row, "article"), row, "id", category="summarization"
    ),
    hub=HubDataset("abisee/cnn_dailymail", "test", "3.0.0"),
    note="published figures use this wording, which favours prompt-lookup drafters",
)


_BOXED = "{problem}\n\nPlease reason step by step, and put your final answer within \\boxed{}."


def _math_500(row: PromptRow, _: Selection) -> Columns:
    prompt = _BOXED.replace("{problem}", text_at(row, "problem"))
    subject, level = label_at(row, "subject"), label_at(row, "level")
    return single_turn_columns(prompt, row, "unique_id", category=subject or "math", difficulty=level)


def _aime(row: PromptRow, _: Selection) -> Columns:
    name = "Problem" if row.columns.get("Problem") is not None else "problem"
    columns = single_turn_columns(_BOXED.replace("{problem}", text_at(row, name)), row, "ID", "id", category="math")
    return {**columns, EXPECTED: label_at(row, "Answer", "answer")}


_TEMPLATE = quoted(_BOXED)
GSM8K = SourceLoader(
    what="GSM8K: grade-school word problems (test: 1,319)",
    columns=("question",),
    template="`question` alone, no examples before it",
    licence="MIT",
    convert=lambda row, _: single_turn_columns(text_at(row, "question"), row, "id", category="math"),
    hub=HubDataset("openai/gsm8k", "test", "main"),
    note="use the test rows: drafters were often trained on the training rows",
)
MATH_500 = SourceLoader(
    what="MATH-500: competition problems",
    columns=("problem",),
    template=_TEMPLATE,
    licence="MIT",
    convert=_math_500,
    hub=HubDataset("HuggingFaceH4/MATH-500", "test"),
    note="category: subject; difficulty: level, 1 to 5",
)
AIME = SourceLoader(
    what="AIME 2022 to 2024: 90 problems, long derivations",
    columns=("problem",),
    template=_TEMPLATE,
    licence="Apache-2.0",
    convert=_aime,
    hub=HubDataset("AI-MO/aimo-validation-aime", "train"),
    note="Maxwell-Jia/AIME_2024 (ID, Problem) is read as well",
)


_CHOICES = ("Correct Answer", "Incorrect Answer 1", "Incorrect Answer 2", "Incorrect Answer 3")
_LETTERS = "ABCD"
_FORMAT = 'Format your response as follows: "The correct answer is (insert answer here)"'
_QUESTION = "What is the correct answer to this question: "


def order_of_choices(seed: int, question: str) -> list[int]:
    """Return the indices of the choices at (A), (B), (C) and (D).

    In the published order the correct answer would always be (A). The shuffled order depends only on the seed, the
    question's id and the choice's number, by SHA-256, and not on a random generator or the order of rows.
    """
    return sorted(
        range(len(_CHOICES)), key=lambda choice: hashlib.sha256(f"{seed}\0{question}\0{choice}".encode()).digest()
    )


def _gpqa_columns(row: PromptRow, selection: Selection) -> Columns:
    key = str(key_at(row, "Record ID"))
    order = order_of_choices(selection.seed or 0, key)
    shuffled = [_CHOICES[choice] for choice in order]
    choices = [f"({letter}) {text_at(row, name).strip()}" for letter, name in zip(_LETTERS, shuffled, strict=True)]
    prompt = "\n".join([_QUESTION + text_at(row, "Question"), "", "Choices:", *choices, "", _FORMAT])
    domain, subdomain = label_at(row, "High-level domain"), label_at(row, "Subdomain")
    columns = single_turn_columns(prompt, row, category=domain or "stem", sub_category=subdomain)
    return {**columns, "id": key, EXPECTED: _LETTERS[order.index(0)]}


GPQA = SourceLoader(
    what="GPQA: graduate-level questions with four choices (main 448, diamond 198, extended 546)",
    columns=("Question", *_CHOICES),
    template=f"`{_QUESTION}{{Question}}⏎⏎Choices:⏎(A) …⏎(B) …⏎(C) …⏎(D) …⏎⏎{_FORMAT}`, choices shuffled by seed",
    licence="CC BY 4.0; must not be published in plain text",
    convert=_gpqa_columns,
    hub=HubDataset("Idavidrein/gpqa", "train", CONFIG),
    gated=True,
    note="category: High-level domain; sub-category: Subdomain",
)


_COMPLETE = (
    "Complete the following Python function. Answer with the whole function in one code block."
    "\n\n```python\n{code}\n```"
)

_INSTRUCT = "{input}\n\n{instruction} Just output the code, do not include any explanation."

_EDIT = (
    "Given a code file, please apply the change requests and generate the new file.\n\n"
    "Original file:\n```python\n{code}\n```\n\nChange request:\n{change_request}\n\n"
    'Please generate the new code file in the "New file" section below.'
)


def _humaneval(row: PromptRow, selection: Selection) -> Columns:
    code = text_at(row, "prompt")
    prompt = code if selection.form == "raw" else _COMPLETE.replace("{code}", code.rstrip("\n"))
    return single_turn_columns(prompt, row, "task_id", category="coding")


def _mbpp(row: PromptRow, _: Selection) -> Columns:
    name = "prompt" if row.columns.get("text") is None and row.columns.get("prompt") is not None else "text"
    return single_turn_columns(text_at(row, name), row, "task_id", category="coding")


def _instructcoder(row: PromptRow, _: Selection) -> Columns:
    code, instruction = text_at(row, "input"), text_at(row, "instruction")
    return single_turn_columns(
        _fill_template(_INSTRUCT, input=code, instruction=instruction), row, "id", category="editing"
    )


def _edit(row: PromptRow, _: Selection) -> Columns:
    code, change = text_at(row, "code"), text_at(row, "change_request")
    return single_turn_columns(_fill_template(_EDIT, code=code, change_request=change), row, "id", category="editing")


def _fill_template(template: str, **texts: str) -> str:
    """Fill all fields in one pass, so that braces inside a text are neither interpreted nor changed."""
    return re.sub(r"\{(\w+)\}", lambda found: texts[found[1]], template)


HUMANEVAL = SourceLoader(
    what="HumanEval: 164 Python functions to complete",
    columns=("task_id", "prompt"),
    template=f"config chat: ````` {_COMPLETE} `````; config raw: `prompt` alone as the user's message".replace(
        "\n", "⏎"
    ),
    licence="MIT",
    convert=_humaneval,
    hub=HubDataset("openai/openai_humaneval", "test"),
    note="HumanEval.jsonl.gz can be read directly. With config raw, a chat model often starts its answer with prose",
)


MBPP = SourceLoader(
    what="MBPP: Python functions from one sentence (test: 500)",
    columns=("text | prompt",),
    template="`text` alone (sanitized files: `prompt`)",
    licence="CC BY 4.0",
    convert=_mbpp,
    hub=HubDataset("google-research-datasets/mbpp", "test", "full"),
)

INSTRUCTCODER = SourceLoader(
    what="InstructCoder: edits of a given piece of code (108,000)",
    columns=("input", "instruction"),
    template=quoted(_INSTRUCT),
    licence="not stated on the hub: do not redistribute it",
    convert=_instructcoder,
    hub=HubDataset("likaixin/InstructCoder", "train"),
    note="answers repeat the input, which favours prompt-lookup drafters",
)

EDIT = SourceLoader(
    what="Blazedit: whole files with a change request, answered with the whole new file",
    columns=("code", "change_request"),
    template=quoted(_EDIT),
    licence="unknown: see its page on the hub",
    convert=_edit,
    hub=HubDataset(f"vdaita/{CONFIG}", "train"),
    note="the template is Blazedit's own, so that figures are comparable; answers repeat most of the input",
)
