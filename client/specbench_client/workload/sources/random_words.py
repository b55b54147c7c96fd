"""Sessions of random words, of which a prompt cache can reuse a known share, and the words of other generated texts.

Every word is derived from the seed by SHA-3, so it is the same on every machine. A model answers such text briefly or
repeats one word, so acceptance and speed resemble no real traffic. Every result with such prompts is marked.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from specbench_api.spec.dataset import Selection, Sessions, Source
from specbench_client.chat import ChatMessage
from specbench_client.documents.prompt_coverage import CategoryCoverage, PromptCoverage
from specbench_client.workload.prompt_files import PromptRow
from specbench_client.workload.row_parsing import BadRow, Prompt
from specbench_client.workload.sources.loader import Columns, SourceLoader, key_at

CATEGORY = "sessions"
_WORDS_TEXT = (
    "action activity age air area arm art baby back basic better blue body book boy bread brown building business"
    " car case center change child city class clear close cold college common community company computer control"
    " cost country court current dark data day decision deep director doctor door early easy effect end event eye"
    " face fact family fast father field figure film final fine foot force foreign form free friend full game"
    " general girl glass gold great green ground group hair hand hard head health heart heavy high history home hot"
    " hour house human idea image industry interest issue job kind known land large late law leader legal level"
    " light line little local long look lot love low main major man market matter medical member metal mind minute"
    " moment money month mother movie music name nation national natural need news night north number office"
    " official old open others paper parent part party past patient people person phone picture piece place plan"
    " player point policy popular position positive possible power practice price private problem product program"
    " project public question quick rate ready real reason recent record red report research result rich right river"
    " road role room safe school season sense service short show side similar simple site small social son source"
    " space special spring star state step stone story street strong student study summer support system table tax"
    " teacher team test thing time total town tree truth type use value view voice wall warm water way week whole"
    " wife window winter woman word work worker world year young"
)
WORDS = _WORDS_TEXT.split()
"""One word for each byte. Each is one token in o200k_base and in a vocabulary of 50,000."""


def random_text(key: str, words: int) -> str:
    """Return this many words. A longer text of the same key begins with the shorter one."""
    return " ".join(map(WORDS.__getitem__, hashlib.shake_256(key.encode()).digest(words)))


def session_prompts(selection: Selection, lengths: Sessions) -> list[Prompt]:
    """Return `count` sessions."""
    seed = selection.seed or 0
    prefix = random_text(f"{seed}/shared", lengths.shared_prefix_tokens)
    opening = (ChatMessage("system", prefix, shared=len(prefix)),) if prefix else ()

    def session(number: int) -> Prompt:
        asked = (
            ChatMessage("user", random_text(f"{seed}/{number}/{turn}", lengths.turn_tokens))
            for turn in range(lengths.turns)
        )
        first, *later = ((message,) for message in asked)
        return Prompt(f"session-{number}", CATEGORY, ((*opening, *first), *later), lengths.answer_tokens)

    return [session(number) for number in range(selection.count or 0)]


def sessions_coverage(prompts: Sequence[Prompt], lengths: Sessions) -> PromptCoverage:
    """Return the coverage of sessions: no rows are read, so none are missing."""
    count, turns = len(prompts), sum(len(prompt.turns) for prompt in prompts)
    known = CategoryCoverage(category=CATEGORY, requested=count, used=count, turns=turns)
    return PromptCoverage(
        source=str(Source.SESSIONS),
        rows=count,
        requested=count,
        used=count,
        turns=turns,
        by_category=[known],
        reusable_share=lengths.reusable_share,
    )


# Mooncake's traces (https://github.com/kvcache-ai/Mooncake, FAST25-release/traces): lengths and shared prefixes of
# recorded requests, without their texts. A prompt has one hash id for each block of 512 tokens, of which the last may
# be shorter. Rows that begin with the same ids had the same beginning, and get the same one here.

BLOCK_TOKENS = 512


def _convert(row: PromptRow, selection: Selection) -> Columns:
    tokens, limit = _count_at(row, "input_length"), _count_at(row, "output_length")
    ids = row.columns.get("hash_ids")
    if not isinstance(ids, list) or not all(isinstance(one, int) and not isinstance(one, bool) for one in ids):
        raise BadRow("hash_ids is missing or not a list of whole numbers: give one id for each block of 512 tokens")
    blocks = -(-tokens // BLOCK_TOKENS)
    if len(ids) != blocks:
        raise BadRow(
            f"input_length is {tokens}, which is {blocks} blocks of {BLOCK_TOKENS} tokens, but hash_ids has {len(ids)}"
            " ids: correct one of them (traces with other blocks are not Mooncake's)"
        )
    sizes = [BLOCK_TOKENS] * (blocks - 1) + [tokens - BLOCK_TOKENS * (blocks - 1)]
    texts = [random_text(f"{selection.seed or 0}/block/{one}", size) for one, size in zip(ids, sizes, strict=True)]
    return {"id": key_at(row), "prompt": " ".join(texts), "output_length": limit}


def _count_at(row: PromptRow, name: str) -> int:
    value: Any = row.columns.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        shown = "missing" if value is None else f"{value!r:.60}"
        raise BadRow(f"{name} is {shown}: give a number of tokens, 1 or more")
    return value


MOONCAKE = SourceLoader(
    what="a Mooncake trace: lengths and shared prefixes of recorded requests",
    columns=("timestamp", "input_length", "output_length", "hash_ids"),
    template="`input_length` random words of one token; equal `hash_ids` at the beginning give equal beginnings",
    licence="that of the trace; it contains no texts",
    convert=_convert,
    note=(
        "each answer has `output_length` tokens (`ignore_eos`), which `output.maxTokens` must allow. With"
        " `load.arrival: {process: Trace, uri: FILE}` requests also have the times of the trace, row by row"
    ),
)
