"""`spec.drafters[]`: how draft tokens are proposed."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, ClassVar

from pydantic import Field, model_validator

from specbench_api.model import ApiModel, KeyedBy, Open, Rule, refuse_broken
from specbench_api.spec.engine import Argument

BASELINE_NAME = "none"


class Method(StrEnum):
    """How drafts are made. Which engine has which, since when, and where it is not the same thing: docs/engines.md."""

    NONE = "none"
    NGRAM = "ngram"
    DRAFT_MODEL = "draft_model"
    EAGLE = "eagle"
    EAGLE3 = "eagle3"
    MTP = "mtp"
    MEDUSA = "medusa"
    LOOKAHEAD = "lookahead"
    SUFFIX = "suffix"
    PARD = "pard"
    DFLASH = "dflash"
    DSPARK = "dspark"
    CUSTOM = "custom"
    """What the engine has under a name of its own: `algorithm`."""


NEEDS_MODEL = (
    Method.DRAFT_MODEL, Method.EAGLE, Method.EAGLE3, Method.MEDUSA, Method.PARD, Method.DFLASH, Method.DSPARK,
)  # fmt: skip
TEXT_ALONE = (Method.NGRAM, Method.SUFFIX, Method.LOOKAHEAD)
TREES = (Method.EAGLE, Method.EAGLE3, Method.MTP, Method.CUSTOM)
"""Whose drafts may branch."""


def _cel(methods: tuple[Method, ...]) -> str:
    return f"[{', '.join(repr(str(method)) for method in methods)}]"


class DraftLength(ApiModel):
    """One step of a schedule: up to this many requests in the batch, so many draft tokens."""

    batch_size: Annotated[int, Field(ge=1, le=4096)]
    """Largest batch for which it holds; the largest of the list holds beyond it."""
    tokens: Annotated[int, Field(ge=0, le=64)]
    """Draft tokens a step; 0: no drafts."""


class Drafter(ApiModel):
    """One arm beside the baseline: a method and its knobs."""

    rules: ClassVar = (
        Rule(
            "self.method != 'none'",
            "the baseline is added by itself: leave it out of drafters (or set baseline: Skip)",
        ),
        Rule(f"self.name != '{BASELINE_NAME}'", "the name 'none' is the baseline's own: choose another"),
        Rule(
            f"!(self.method in {_cel(NEEDS_MODEL)}) || has(self.model)",
            "this method drafts with a model of its own: set model to its name or path",
        ),
        Rule(
            f"!(self.method in {_cel(TEXT_ALONE)}) || !has(self.model)",
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
        Rule(
            "(self.method == 'custom') == has(self.algorithm)",
            "algorithm is the engine's own name of a method, and goes with method custom",
        ),
        Rule(
            f"self.method in {_cel(TREES)} || (!has(self.eagleTopk) && !has(self.numDraftTokens))",
            "eagleTopk and numDraftTokens make a tree of drafts: methods eagle, eagle3, mtp and custom",
        ),
        Rule(
            "self.method in ['eagle', 'eagle3'] || !has(self.tokenMap)",
            "tokenMap prunes the vocabulary of an EAGLE head: methods eagle and eagle3",
        ),
    )

    name: Annotated[str, Field(min_length=1, max_length=32, pattern=r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$")]
    """Name of the arm in tables and status: lower case letters, digits and dashes."""
    method: Method
    """How drafts are proposed."""
    algorithm: Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.,-]*$")] | None = (
        None
    )
    """custom: the engine's own name of the method, as its documentation has it."""
    model: Annotated[str, Field(min_length=1, max_length=1024)] | None = None
    """The drafter's own model: a hub name, or a path in the image or on this machine."""
    revision: Annotated[str, Field(min_length=1, max_length=128)] | None = None
    """Revision of the drafter's model on the hub."""
    num_speculative_tokens: Annotated[int, Field(ge=1, le=64)] = 3
    """Draft tokens a step, at most (k). Of a tree: its depth."""
    draft_lengths: Annotated[list[DraftLength], Field(max_length=16), KeyedBy("batch_size")] = []
    """Draft tokens by the size of the batch (dynamic draft length); without it, numSpeculativeTokens always."""
    prompt_lookup_min: Annotated[int, Field(ge=1, le=64)] | None = None
    """ngram: shortest suffix that is looked up."""
    prompt_lookup_max: Annotated[int, Field(ge=1, le=64)] | None = None
    """ngram: longest suffix that is looked up."""
    eagle_topk: Annotated[int, Field(ge=1, le=64)] | None = None
    """Trees: branches at each level. Without it, 1: a chain."""
    num_draft_tokens: Annotated[int, Field(ge=2, le=1024)] | None = None
    """Trees: nodes that are verified a step, the root among them."""
    token_map: Annotated[str, Field(min_length=1, max_length=1024)] | None = None
    """Vocabulary-pruned heads: the file or hub name of the tokens that are kept."""
    draft_tensor_parallel_size: Annotated[int, Field(ge=1, le=64)] | None = None
    """GPUs over which the drafter's model is split, where the engine lets that differ from the target's."""
    speculative_config: Annotated[dict[str, Any], Field(max_length=32), Open()] = {}
    """Further keys of the engine's own speculative configuration, forwarded as they are. One that contradicts a field
    of this arm is an error."""
    args: Annotated[list[Argument], Field(max_length=32)] = []
    """Arguments of this arm alone. They make it differ from the baseline, and the report says so."""

    @model_validator(mode="after")
    def _coherent(self) -> Drafter:
        lookups = (self.prompt_lookup_min, self.prompt_lookup_max)
        tree = (self.eagle_topk, self.num_draft_tokens)
        broken = (
            self.method is Method.NONE,
            self.name == BASELINE_NAME,
            self.method in NEEDS_MODEL and self.model is None,
            self.method in TEXT_ALONE and self.model is not None,
            self.method is not Method.NGRAM and any(lookups),
            None not in lookups and lookups[0] > lookups[1],  # type: ignore[operator]
            (self.method is Method.CUSTOM) != (self.algorithm is not None),
            self.method not in TREES and any(tree),
            self.method not in (Method.EAGLE, Method.EAGLE3) and self.token_map is not None,
        )
        refuse_broken(self.rules, [not each for each in broken])
        return self
