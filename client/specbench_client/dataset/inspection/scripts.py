"""In which script a text is written, by the letters' own names in Unicode. This is not its language.

German and English are both LATIN. It shows at once whether a set is multilingual beyond one script; telling languages
apart takes a model, and short prompts with code in them are what such models get wrong.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from functools import lru_cache

NONE = "NO LETTERS"
_TOGETHER = {"HIRAGANA": "JAPANESE", "KATAKANA": "JAPANESE", "HALFWIDTH": "JAPANESE", "FULLWIDTH": "LATIN"}


def script_of(text: str) -> str:
    """The script of most of its letters, the first by name of several; JAPANESE where a tenth of them is kana."""
    counted = Counter(script for script in map(_script, text) if script)
    if not counted:
        return NONE
    if counted["JAPANESE"] * 10 >= sum(counted.values()):
        return "JAPANESE"
    return min(counted, key=lambda script: (-counted[script], script))


@lru_cache(maxsize=100_000)
def _script(character: str) -> str | None:
    if not character.isalpha():
        return None
    word = unicodedata.name(character, "UNNAMED").split(" ", 1)[0].split("-", 1)[0]
    return _TOGETHER.get(word, word)
