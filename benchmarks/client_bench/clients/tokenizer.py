"""A tokenizer folder for clients that require one: one token per word, so that tokenizing costs little."""

from __future__ import annotations

import json
from pathlib import Path

_SPECIAL = ("<unk>", "<s>", "</s>")
_WORDS = ("Tell", "me", "about", "number", "and", "what", "follows", "from", "it", "please", "in", "a", "few", "words")


def write_tokenizer(folder: Path) -> Path:
    """Write the tokenizer and return its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    words = (*_SPECIAL, *_WORDS, *(f"word{digit}" for digit in range(10)))
    special = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    tokenizer = {
        "version": "1.0",
        "added_tokens": [{"id": number, "content": word, **special} for number, word in enumerate(_SPECIAL)],
        "pre_tokenizer": {"type": "Whitespace"},
        "model": {
            "type": "WordLevel",
            "vocab": {word: number for number, word in enumerate(words)},
            "unk_token": _SPECIAL[0],
        },
    }
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "unk_token": _SPECIAL[0],
        "bos_token": _SPECIAL[1],
        "eos_token": _SPECIAL[2],
        "model_max_length": 131072,
        "chat_template": "{% for m in messages %}{{ m['content'] }}{% endfor %}",
    }
    documents = {
        "tokenizer.json": tokenizer,
        "tokenizer_config.json": config,
        "config.json": {"model_type": "gpt2", "vocab_size": len(words)},
    }
    for name, document in documents.items():
        (folder / name).write_text(json.dumps(document))
    return folder
