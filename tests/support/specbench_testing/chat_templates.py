"""Small chat templates in the shapes of common model families, and a small tokenizer to apply them with.

The templates are written for the tests: each has the difficulties of its family, and no text of the original.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

CHATML = """\
{%- if messages[0].role != 'system' %}
    {{- '<|im_start|>system\\nBe brief.<|im_end|>\\n' }}
{%- endif %}
{% for message in messages %}
    {{- '<|im_start|>' + message.role + '\\n' + message.content | trim + '<|im_end|>' }}
{% endfor %}
{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""
"""Whitespace that depends on trim_blocks and lstrip_blocks."""
DATED = """\
{{- bos_token }}
{%- if not date_string is defined %}
    {%- set date_string = strftime_now("%d %b %Y") if strftime_now is defined else "1 Jan 1970" %}
{%- endif %}
{%- set system = messages[0].content if messages[0].role == 'system' else '' %}
{{- '<|head|>system<|/head|>\\n\\nToday: ' + date_string + '\\n' + system + '<|eot|>' }}
{%- for message in messages %}
    {%- if loop.first and message.role == 'system' %}{% continue %}{% endif %}
    {%- if message.role not in ['user', 'assistant'] %}
        {{- raise_exception('no role ' + message.role) }}
    {%- endif %}
    {{- '<|head|>' + message.role + '<|/head|>\\n\\n' + message.content + '<|eot|>' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|head|>assistant<|/head|>\\n\\n' }}{% endif %}"""
"""The template writes the beginning-of-sequence token, which the tokenizer also adds, and today's date."""
THINKING = """\
{%- set ns = namespace(last=messages | length - 1) %}
{%- for message in messages[::-1] %}
    {%- if message.role == 'user' %}
        {%- set ns.last = messages | length - 1 - loop.index0 %}
        {%- break %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.role == 'assistant' %}
        {%- set thought = message.reasoning_content if message.reasoning_content is string else '' %}
        {{- '<|im_start|>assistant\\n' }}
        {%- if loop.index0 > ns.last and thought %}{{- '<think>\\n' + thought + '\\n</think>\\n\\n' }}{% endif %}
        {%- generation %}{{- message.content.split('</think>')[-1].lstrip('\\n') + '<|im_end|>\\n' }}{% endgeneration %}
    {%- else %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if tools %}{{- '<tools>' + tools | tojson + '</tools>\\n' }}{% endif %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' + ('<think>\\n\\n</think>\\n\\n' if enable_thinking is false else '<think>\\n') }}
{%- endif %}"""
"""Loop controls, a namespace, generation marks, a user variable, and reasoning that the prompt opens."""
HARMONY = """\
{%- macro said(role, channel, text) %}
    {{- '<|start|>' + role + ('<|channel|>' + channel if channel else '') + '<|message|>' + text + '<|end|>' }}
{%- endmacro %}
{{- said('system', '', 'Date: ' + strftime_now('%Y-%m-%d') + '\\nReasoning: ' + reasoning_effort | default('medium')) }}
{%- for message in messages %}
    {%- if message.role == 'assistant' %}
        {%- if '<|channel|>' in message.content %}{{- raise_exception('content holds channels') }}{% endif %}
        {%- if message.thinking and loop.last %}{{- said('assistant', 'analysis', message.thinking) }}{% endif %}
        {{- said('assistant', 'final', message.content) }}
    {%- else %}
        {{- said(message.role, '', message.content) }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start|>assistant' }}{% endif %}"""
"""Macros, channels, and a refusal of an answer that contains channels."""

TOOLED = """\
{%- if tools %}{{- '<|im_start|>system\\n# Tools' }}
    {%- for tool in tools %}{{- '\\n' + tool | tojson }}{% endfor %}{{- '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {{- '<|im_start|>' + ('user' if message.role == 'tool' else message.role) + '\\n' }}
    {%- if message.content is string %}{{- message.content }}{% endif %}
    {%- for call in message.tool_calls or [] %}
        {{- '<call>' + call.function.name + ' ' + call.function.arguments | tojson + '</call>' }}
    {%- endfor %}
    {%- if message.tool_call_id %}{{- ' for ' + message.tool_call_id }}{% endif %}
    {{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{% endif %}"""
"""Tools, tool calls with null content, and their results."""

SHAPES = {"tooled": TOOLED, "chatml": CHATML, "dated": DATED, "thinking": THINKING, "harmony": HARMONY}
SPECIAL = (
    "<bos>", "<eos>", "<|im_start|>", "<|im_end|>", "<|head|>", "<|/head|>", "<|eot|>",
    "<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|return|>",
)  # fmt: skip
PLAIN = ("<think>", "</think>")
"""Added tokens that are not special: engines keep them in a text."""
TEXT = ["the quick brown fox jumps over the lazy dog", "how many tokens are there in an answer of a tiny model"]


@dataclass(frozen=True)
class Conversation:
    """A test case: the template, the messages and the template variables."""

    shape: str
    messages: list[dict[str, Any]]
    kwargs: Mapping[str, Any] = field(default_factory=dict)


def chat(*texts: str, system: str | None = None) -> list[dict[str, str]]:
    """A chat that alternates user and assistant."""
    opening = [] if system is None else [{"role": "system", "content": system}]
    roles = ("user", "assistant")
    return opening + [{"role": roles[index % 2], "content": text} for index, text in enumerate(texts)]


_TWO = chat('  the quick <b>fox</b> & "dog"  ', "an answer 😀", "how many\n\ntokens?")
_THOUGHT = [_TWO[0], {**_TWO[1], "reasoning_content": "so\nmany"}, _TWO[2]]
_CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": {"z": "é", "a": [1, 2.5]}}}
CALLED: list[dict[str, Any]] = [
    *chat("what is there?"),
    {"role": "assistant", "content": None, "tool_calls": [_CALL]},
    {"role": "tool", "content": "a fox", "tool_call_id": "c1"},
]
OFFERED = [{"function": {"description": "<b>see</b>", "name": "look"}, "type": "function"}]
CONVERSATIONS = {
    "tools and their results": Conversation("tooled", CALLED, {"tools": OFFERED}),
    "chatml": Conversation("chatml", chat("the quick brown fox")),
    "chatml with a system": Conversation("chatml", chat("the fox", "jumps", "over", system="  Be long. ")),
    "chatml in two turns": Conversation("chatml", _TWO),
    "dated": Conversation("dated", chat("what day is it?")),
    "dated with a system": Conversation("dated", chat("a", "b", "c", system="answer")),
    "dated by a variable": Conversation("dated", chat("what day is it?"), {"date_string": "26 Jul 2024"}),
    "thinking": Conversation("thinking", chat("think of a fox")),
    "not thinking": Conversation("thinking", chat("a fox"), {"enable_thinking": False}),
    "thought before": Conversation("thinking", _THOUGHT),
    "with tools": Conversation("thinking", chat("a fox"), {"tools": [{"about": "é < & >", "name": "f"}]}),
    "harmony": Conversation("harmony", chat("how many?", "two", "sure?"), {"reasoning_effort": "high"}),
    "a user who writes special tokens": Conversation("chatml", chat("<|im_end|><bos> hi")),
}


def tokenizer_folder(folder: Path, shape: str, *, special: tuple[str, ...] = SPECIAL) -> Path:
    """A folder as transformers saves it; its tokenizer adds <bos>. Skips without the tokenizers library."""
    tokenizers = pytest.importorskip("tokenizers", reason="the extra tokenizers is not installed")
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=340, special_tokens=list(special), initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(TEXT, trainer)
    tokenizer.add_tokens([tokenizers.AddedToken(word, normalized=False) for word in PLAIN])
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single="<bos> $A", special_tokens=[("<bos>", tokenizer.token_to_id("<bos>"))]
    )
    tokenizer.enable_truncation(4)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    bos = {"__type": "AddedToken", "content": "<bos>", "lstrip": False, "rstrip": False, "normalized": False}
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": bos, "eos_token": "<eos>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    (folder / "chat_template.jinja").write_text(SHAPES[shape])
    return folder


_TOOL = {"content": "<tool>", "lstrip": False, "rstrip": False, "normalized": False, "single_word": False}
_NEXT_ID = 332
"""The id that a tokenizer of `tokenizer_folder` gives to a new token."""
_CONFIG = "tokenizer_config.json"
_WITHOUT = {"bos_token": None, "eos_token": None}
SETTINGS: dict[str, Mapping[str, Any]] = {
    "special tokens in a map": {
        _CONFIG: _WITHOUT,
        "special_tokens_map.json": {"bos_token": {**_TOOL, "content": "<bos>"}, "eos_token": "<eos>"},
    },
    "a map over the settings": {"special_tokens_map.json": {"bos_token": "<eos>"}},
    "a token only in the settings": {_CONFIG: {"added_tokens_decoder": {str(_NEXT_ID): {**_TOOL, "special": True}}}},
    "a token of other flags": {
        _CONFIG: {
            "added_tokens_decoder": {
                "0": {**_TOOL, "content": "<bos>", "lstrip": True, "rstrip": True, "special": True}
            }
        }
    },
    "a token of an old file": {"added_tokens.json": {"<tool>": _NEXT_ID}},
    "a special token without a name": {_CONFIG: {"extra_special_tokens": ["<tool>"]}},
    "additional_special_tokens": {_CONFIG: {"additional_special_tokens": ["<tool>"]}},
    "a named special token": {_CONFIG: {"extra_special_tokens": {"pad_token": "<tool>"}}},
    "a padding token only in the settings": {_CONFIG: {"pad_token": "<tool>"}},
    "add_bos_token and add_eos_token": {_CONFIG: {"add_bos_token": True, "add_eos_token": True}},
}
"""Files next to a tokenizer.json, with their changes; None removes a key."""
BESIDE = "the fox <tool> jumps <bos> over"
"""A user's text whose tokens depend on these files."""


def folder_beside(folder: Path, files: Mapping[str, Any]) -> Path:
    """A tokenizer folder whose template writes <bos>, with these files changed or added."""
    tokenizer_folder(folder, "dated")
    for name, changes in files.items():
        file = folder / name
        held = json.loads(file.read_text()) if file.exists() else {}
        kept = {key: value for key, value in (held | dict(changes)).items() if value is not None}
        file.write_text(json.dumps(kept))
    return folder
