"""The Jinja of chat templates: the words that transformers gives them, a sandbox, and a day that does not change."""

from __future__ import annotations

from datetime import date

import pytest
from jinja2 import TemplateError

from specbench_client.workload.chat_template.template import compile_template
from specbench_testing.chat_templates import CHATML, chat

DAY = date(2026, 2, 3)


def rendered(source: str, **variables: object) -> str:
    return compile_template(source, DAY).render(**variables)


def test_blocks_leave_no_whitespace_of_their_own() -> None:
    text = rendered(CHATML, messages=chat(" hi "), add_generation_prompt=True)
    assert text == ("<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n")


def test_today_is_the_day_that_was_declared_at_midnight() -> None:
    assert rendered("{{ strftime_now('%d %b %Y %H:%M:%S') }}") == "03 Feb 2026 00:00:00"


def test_json_is_written_as_it_is_and_not_for_a_web_page() -> None:
    assert rendered("{{ told | tojson }}", told={"b": "<é & 'x'>", "a": 1}) == '{"b": "<é & \'x\'>", "a": 1}'
    assert rendered("{{ told | tojson(indent=1, sort_keys=true) }}", told={"b": 1, "a": 2}) == '{\n "a": 2,\n "b": 1\n}'


def test_loops_are_left_and_marks_of_training_are_no_more_than_their_body() -> None:
    assert rendered("{% for n in [1, 2, 3] %}{% if n == 2 %}{% continue %}{% endif %}{{ n }}{% endfor %}") == "13"
    assert rendered("a{% generation %}{{ 'b' }}{% if true %}c{% endif %}{% endgeneration %}d") == "abcd"


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("{{ raise_exception('no tools here') }}", "no tools here"),
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
        ("{% set _ = messages.append(1) %}", "unsafe"),
    ],
)
def test_a_template_may_refuse_and_may_reach_nothing(source: str, words: str) -> None:
    with pytest.raises(TemplateError, match=words):
        rendered(source, messages=[])
