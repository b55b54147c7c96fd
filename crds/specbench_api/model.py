"""The one base of every model that crosses a border: YAML, the API server, S3, or a command line.

camelCase outside, snake_case inside; frozen, so that a plan cannot change under the hand that executes it;
unknown keys are refused, because a mistyped field that is dropped is a benchmark of something else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel


@dataclass(frozen=True)
class Rule:
    """A CEL rule that the API server evaluates on this object, and the message that the user reads."""

    rule: str
    message: str


class ApiModel(BaseModel):
    """Base of all models. `rules` become `x-kubernetes-validations`; python validators say the same."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        alias_generator=to_camel,
        populate_by_name=True,
        use_attribute_docstrings=True,
        ser_json_inf_nan="null",
    )

    rules: ClassVar[tuple[Rule, ...]] = ()

    def to_dict(self) -> dict[str, Any]:
        """As JSON-ready data in the outside spelling; what is missing is left out."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)

    def to_json(self) -> str:
        """As one JSON document, the way it lies in S3."""
        return self.model_dump_json(by_alias=True, exclude_none=True, indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Read what `to_json` wrote. Raises pydantic.ValidationError."""
        return cls.model_validate_json(text)
