"""`spec.drafters[]`: how draft tokens are proposed."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import Field

from specbench_api.api_model import (
    ApiModel,
    Distinct,
    KeyedBy,
    Names,
    PreserveUnknown,
    RuledModel,
    ValidationRule,
    cel_list,
)
from specbench_api.spec.engine import Argument

BASELINE_NAME = "none"
"""Name of the arm without a drafter."""
ARM_NAME_MAX = 32
_NAME_BEFORE_TOKENS = ARM_NAME_MAX - len("-k64")
TOKENS_DEFAULT = 3
DraftTokens = Annotated[int, Field(ge=1, le=64)]
"""Draft tokens per step."""


class Method(Names):
    """Methods of drafting. Engines and versions that support each: docs, "Engines and drafters"."""

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
    """A method that specbench does not define: the engine gets the name in `algorithm`."""


NEEDS_MODEL = (
    Method.DRAFT_MODEL, Method.EAGLE, Method.EAGLE3, Method.MEDUSA, Method.PARD, Method.DFLASH,
)  # fmt: skip
"""Methods with a draft model or head of their own: `model` is required."""
TEXT_ONLY = (Method.NGRAM, Method.SUFFIX, Method.LOOKAHEAD)
"""Methods that draft from the text only: `model` is not allowed."""
TREES = (Method.EAGLE, Method.EAGLE3, Method.MTP, Method.CUSTOM)
"""Methods whose drafts may branch into a tree."""


TOKEN_MAPS = (Method.EAGLE, Method.MTP)
"""Methods whose head may be given a pruned vocabulary."""


class DraftLength(ApiModel):
    """One row of a batch-dependent draft length: the draft tokens for batches up to this size."""

    batch_size: Annotated[int, Field(ge=1, le=4096)]
    """Largest batch to which the row applies; the last row also applies to all larger batches."""
    tokens: Annotated[int, Field(ge=0, le=64)]
    """Draft tokens per step; 0 disables drafting."""


class Drafter(RuledModel):
    """One arm besides the baseline: a method and its parameters."""

    rules: ClassVar = (
        ValidationRule(
            "self.method != 'none'",
            "method none is the baseline, which is added automatically: remove it from drafters (to omit it, set"
            " baseline: Skip)",
            lambda drafter: drafter.method is not Method.NONE,
        ),
        ValidationRule(
            f"self.name != '{BASELINE_NAME}'",
            "the name 'none' is reserved for the baseline: choose another",
            lambda drafter: drafter.name != BASELINE_NAME,
        ),
        ValidationRule(
            f"!(self.method in {cel_list(NEEDS_MODEL)}) || has(self.model)",
            "this method needs a draft model: set model to its name or path",
            lambda drafter: drafter.method not in NEEDS_MODEL or drafter.model is not None,
        ),
        ValidationRule(
            f"!(self.method in {cel_list(TEXT_ONLY)}) || !has(self.model)",
            "this method drafts from the text and uses no model: remove model",
            lambda drafter: drafter.method not in TEXT_ONLY or drafter.model is None,
        ),
        ValidationRule(
            "self.method == 'ngram' || (!has(self.promptLookupMin) && !has(self.promptLookupMax))",
            "promptLookupMin and promptLookupMax are only valid with method ngram: remove them",
            lambda drafter: (
                drafter.method is Method.NGRAM or not (drafter.prompt_lookup_min or drafter.prompt_lookup_max)
            ),
        ),
        ValidationRule(
            "!has(self.promptLookupMin) || !has(self.promptLookupMax) || self.promptLookupMin <= self.promptLookupMax",
            "promptLookupMin is larger than promptLookupMax: swap them",
            lambda drafter: (
                not (drafter.prompt_lookup_min and drafter.prompt_lookup_max)
                or drafter.prompt_lookup_min <= drafter.prompt_lookup_max
            ),
        ),
        ValidationRule(
            "(self.method == 'custom') == has(self.algorithm)",
            "method custom needs algorithm (the engine's own name of the method), and no other method takes it",
            lambda drafter: (drafter.method is Method.CUSTOM) == (drafter.algorithm is not None),
        ),
        ValidationRule(
            f"self.method in {cel_list(TREES)} || (!has(self.eagleTopk) && !has(self.numDraftTokens))",
            "eagleTopk and numDraftTokens are only valid with methods eagle, eagle3, mtp and custom: remove them",
            lambda drafter: drafter.method in TREES or not (drafter.eagle_topk or drafter.num_draft_tokens),
        ),
        ValidationRule(
            f"self.method in {cel_list(TOKEN_MAPS)} || !has(self.tokenMap)",
            "tokenMap is only valid with methods eagle and mtp (a head of eagle3 contains its own): remove it",
            lambda drafter: drafter.method in TOKEN_MAPS or drafter.token_map is None,
        ),
        ValidationRule(
            f"!has(self.tryTokens) || (self.numSpeculativeTokens == {TOKENS_DEFAULT} && size(self.draftLengths) == 0)",
            "tryTokens makes an arm for each draft length, so remove numSpeculativeTokens and draftLengths",
            lambda drafter: (
                drafter.try_tokens is None
                or (drafter.num_speculative_tokens == TOKENS_DEFAULT and not drafter.draft_lengths)
            ),
        ),
        ValidationRule(
            f"!has(self.tryTokens) || size(self.name) <= {_NAME_BEFORE_TOKENS}",
            "name is too long for tryTokens, which appends -k and the draft length: shorten it to"
            f" {_NAME_BEFORE_TOKENS} characters",
            lambda drafter: drafter.try_tokens is None or len(drafter.name) <= _NAME_BEFORE_TOKENS,
        ),
    )

    name: Annotated[str, Field(min_length=1, max_length=ARM_NAME_MAX, pattern=r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$")]
    """Name of the arm in tables and status: lower-case letters, digits and dashes."""
    method: Method
    """The method of drafting. Engines and versions that support each: docs, "Engines and drafters"."""
    algorithm: Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.,-]*$")] | None = (
        None
    )
    """With method custom: the engine's own name of the method, as in its documentation."""
    model: Annotated[str, Field(min_length=1, max_length=1024)] | None = None
    """The draft model or head: a name on the hub, or a path in the image (with `specbench run`, on this machine)."""
    revision: Annotated[str, Field(min_length=1, max_length=128)] | None = None
    """Revision of the draft model on the hub."""
    num_speculative_tokens: DraftTokens = TOKENS_DEFAULT
    """Maximum draft tokens per step (k). For a tree: its depth."""
    try_tokens: Annotated[list[DraftTokens], Field(min_length=1, max_length=16), Distinct()] | None = None
    """Instead of numSpeculativeTokens: several values of it. Each is an arm of its own: `[1, 3, 5]` makes NAME-k1,
    NAME-k3 and NAME-k5."""
    draft_lengths: Annotated[list[DraftLength], Field(max_length=16), KeyedBy("batch_size")] = []
    """Draft tokens per step by batch size (dynamic draft length). Empty: numSpeculativeTokens at every batch size."""
    prompt_lookup_min: Annotated[int, Field(ge=1, le=64)] | None = None
    """Method ngram: shortest suffix to look up, in tokens. Without it: the engine's default; vLLM then looks up only
    suffixes of promptLookupMax tokens."""
    prompt_lookup_max: Annotated[int, Field(ge=1, le=64)] | None = None
    """Method ngram: longest suffix to look up, in tokens. Without it: the engine's default."""
    eagle_topk: Annotated[int, Field(ge=1, le=64)] | None = None
    """Trees: branches at each level. Without it: 1, which is a chain."""
    num_draft_tokens: Annotated[int, Field(ge=2, le=1024)] | None = None
    """Trees: nodes verified per step, including the root."""
    token_map: Annotated[str, Field(min_length=1, max_length=1024)] | None = None
    """Heads with a pruned vocabulary: file, or name on the hub, that lists the tokens they can propose."""
    draft_tensor_parallel_size: Annotated[int, Field(ge=1, le=64)] | None = None
    """Number of GPUs over which the draft model is split, if the engine allows it to differ from the target's. Without
    it: the engine's default."""
    speculative_config: Annotated[dict[str, Any], Field(max_length=32), PreserveUnknown()] = {}
    """Additional keys of the engine's speculative configuration, passed unchanged. A key that contradicts a field of
    this drafter is an error."""
    args: Annotated[list[Argument], Field(max_length=32)] = []
    """Additional engine arguments of this arm only. The arm then differs from the baseline in more than its drafter,
    which the report mentions."""

    @property
    def arms(self) -> list[Drafter]:
        """One drafter for each arm: itself, or one for each of tryTokens."""
        if self.try_tokens is None:
            return [self]
        return [
            self.model_copy(
                update={"name": f"{self.name}-k{tokens}", "num_speculative_tokens": tokens, "try_tokens": None}
            )
            for tokens in self.try_tokens
        ]

    @property
    def branches(self) -> int:
        """Branches at each level of the draft: 1 for a chain."""
        return self.eagle_topk or 1
