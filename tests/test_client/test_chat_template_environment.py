"""The Jinja environment of chat templates: functions as in transformers, a sandbox, and a fixed date."""

from __future__ import annotations

from datetime import date

import pytest
from jinja2 import TemplateError

from specbench_client.workload.chat_template.template import compile_template
from specbench_testing.chat_templates import CHATML, chat

DAY = date(2026, 2, 3)


def render(source: str, **variables: object) -> str:
    return compile_template(source, DAY).render(**variables)


def test_blocks_add_no_whitespace() -> None:
    text = render(CHATML, messages=chat(" hi "), add_generation_prompt=True)
    assert text == ("<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n")


def test_strftime_now_uses_midnight_of_the_configured_date() -> None:
    assert render("{{ strftime_now('%d %b %Y %H:%M:%S') }}") == "03 Feb 2026 00:00:00"


def test_tojson_does_not_escape_html() -> None:
    assert render("{{ value | tojson }}", value={"b": "<é & 'x'>", "a": 1}) == '{"b": "<é & \'x\'>", "a": 1}'
    assert render("{{ value | tojson(indent=1, sort_keys=true) }}", value={"b": 1, "a": 2}) == '{\n "a": 2,\n "b": 1\n}'


def test_loop_controls_work_and_generation_blocks_are_transparent() -> None:
    assert render("{% for n in [1, 2, 3] %}{% if n == 2 %}{% continue %}{% endif %}{{ n }}{% endfor %}") == "13"
    assert render("a{% generation %}{{ 'b' }}{% if true %}c{% endif %}{% endgeneration %}d") == "abcd"


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("{{ raise_exception('no tools here') }}", "no tools here"),
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
        ("{% set _ = messages.append(1) %}", "unsafe"),
    ],
)
def test_template_errors_and_unsafe_access_are_rejected(source: str, words: str) -> None:
    with pytest.raises(TemplateError, match=words):
        render(source, messages=[])
