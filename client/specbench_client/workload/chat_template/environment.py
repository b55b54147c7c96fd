"""The Jinja in which chat templates are written: the sandbox and the words that transformers gives them.

The one difference is `strftime_now`: transformers tells the moment of the call, which would make another prompt of the
same messages every day. Here it tells the day that the spec declares, at midnight.
"""

from __future__ import annotations

import json
from datetime import date, datetime, time
from typing import Any, NoReturn

from jinja2 import Environment, Template, TemplateError, meta, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment


class GenerationMarks(Extension):
    """`{% generation %} … {% endgeneration %}`, which marks for training what the assistant said; here, its body."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """The body, as if the marks were not there."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def compiled(source: str, today: date) -> Template:
    """The template, ready to render. Raises jinja2.TemplateSyntaxError."""
    environment = _sandbox()
    moment = datetime.combine(today, time())
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = moment.strftime
    return environment.from_string(source)


def names_asked(source: str) -> set[str]:
    """Variables that the template may ask for and does not set itself. Raises jinja2.TemplateSyntaxError."""
    return meta.find_undeclared_variables(_sandbox().parse(source))


def _sandbox() -> Environment:
    return ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[GenerationMarks, loopcontrols]
    )


def _tojson(
    value: Any,
    ensure_ascii: bool = False,  # noqa: FBT001, FBT002 -- a template's words
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,  # noqa: FBT001, FBT002
) -> str:
    """Jinja's own would escape <, > and & for HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise_exception(message: str) -> NoReturn:
    """How a template refuses what it cannot render."""
    raise TemplateError(message)
