"""`spec.drafters[]`: how draft tokens are proposed."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, ClassVar

from pydantic import Field, model_validator

from specbench_api.model import ApiModel, Rule
from specbench_api.spec.engine import Argument

BASELINE_NAME = "none"


class Method(StrEnum):
    """How drafts are made. Which engine has which is told by `launch.support`."""

    NONE = "none"
    NGRAM = "ngram"
    DRAFT_MODEL = "draft_model"
    EAGLE = "eagle"
    EAGLE3 = "eagle3"
    MTP = "mtp"
    MEDUSA = "medusa"
    SUFFIX = "suffix"


NEEDS_MODEL = (Method.DRAFT_MODEL, Method.EAGLE, Method.EAGLE3, Method.MEDUSA)
_NEEDS_MODEL_CEL = ", ".join(f"'{method}'" for method in NEEDS_MODEL)


class Drafter(ApiModel):
    """One arm beside the baseline: a method and its knobs."""

    rules: ClassVar = (
        Rule(
            "self.method != 'none'",
            "the baseline is added by itself: leave it out of drafters (or set baseline: Skip)",
        ),
        Rule(f"self.name != '{BASELINE_NAME}'", "the name 'none' is the baseline's own: choose another"),
        Rule(
            f"!(self.method in [{_NEEDS_MODEL_CEL}]) || has(self.model)",
            "this method drafts with a model of its own: set model to its name or path",
        ),
        Rule(
            "!(self.method in ['ngram', 'suffix']) || !has(self.model)",
            "this method drafts from the text alone: remove model",
        ),
        Rule(
            "self.method == 'ngram' || (!has(self.promptLookupMin) && !has(self.promptLookupMax))",
            "promptLookupMin and promptLookupMax belong to method ngram alone",
        ),
        Rule(
            "!has(self.promptLookupMin) || !has(self.promptLookupMax) || self.promptLookupMin <= self.promptLookupMax",
            "promptLookupMin is larger than promptLookupMax",
        ),
    )

    name: Annotated[str, Field(min_length=1, max_length=32, pattern=r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$")]
    """Name of the arm in tables and status: lower case letters, digits and dashes."""
    method: Method
    """How drafts are proposed."""
    model: Annotated[str, Field(min_length=1, max_length=1024)] | None = None
    """The drafter's own model: a hub name, or a path in the image or on this machine."""
    num_speculative_tokens: Annotated[int, Field(ge=1, le=64)] = 3
    """Draft tokens a step, at most (k)."""
    prompt_lookup_min: Annotated[int, Field(ge=1, le=64)] | None = None
    """ngram: shortest suffix that is looked up."""
    prompt_lookup_max: Annotated[int, Field(ge=1, le=64)] | None = None
    """ngram: longest suffix that is looked up."""
    args: Annotated[list[Argument], Field(max_length=32)] = []
    """Arguments of this arm alone. They make it differ from the baseline, and the report says so."""

    @model_validator(mode="after")
    def _coherent(self) -> Drafter:
        needs = self.method in NEEDS_MODEL
        text_only = self.method in (Method.NGRAM, Method.SUFFIX)
        lookups = (self.prompt_lookup_min, self.prompt_lookup_max)
        broken = (
            self.method is Method.NONE,
            self.name == BASELINE_NAME,
            needs and self.model is None,
            text_only and self.model is not None,
            self.method is not Method.NGRAM and any(lookups),
            None not in lookups and lookups[0] > lookups[1],  # type: ignore[operator]
        )
        for rule, is_broken in zip(self.rules, broken, strict=True):
            if is_broken:
                raise ValueError(rule.message)
        return self
