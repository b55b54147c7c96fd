"""ShareGPT: the first message of each conversation."""

from __future__ import annotations

from specbench_api.spec.dataset import Selection
from specbench_client.workload.prompt_files import PromptRow
from specbench_client.workload.row_parsing import BadRow
from specbench_client.workload.sources.loader import (
    Columns,
    HubDataset,
    RowExcluded,
    SourceLoader,
    single_hub,
    single_turn_columns,
)

_LEAST_MESSAGES = 2
_HUMAN = ("human", "user")
_FILE = "ShareGPT_V3_unfiltered_cleaned_split.json"


def _convert(row: PromptRow, _: Selection) -> Columns:
    found = row.columns.get("conversations")
    if not isinstance(found, list):
        raise BadRow("the column conversations is missing: a row of ShareGPT has a list of messages in it")
    if len(found) < _LEAST_MESSAGES:
        raise RowExcluded("fewer than two messages")
    first = found[0]
    if not isinstance(first, dict) or not isinstance(first.get("value"), str):
        raise BadRow('conversations[0] is not a message: give {"from": "human", "value": "…"}')
    if first.get("from") not in _HUMAN:
        raise RowExcluded("does not begin with a user's message")
    if not first["value"].strip():
        raise RowExcluded("begins with an empty message")
    return single_turn_columns(first["value"], row, "id", category="chat")


LOADER = SourceLoader(
    what="ShareGPT: first messages of real conversations (about 94,000)",
    columns=("id", "conversations"),
    template="`conversations[0].value` alone",
    licence="Apache-2.0 according to its uploader; the text belongs to its users",
    convert=_convert,
    hub=single_hub(HubDataset("anon8231489123/ShareGPT_Vicuna_unfiltered", "train", file=_FILE)),
    note="rows with fewer than two messages, or whose first message is not from the user, are left out and counted;"
    " for the usual lengths add `inputTokens: {min: 4, max: 1024}`. EAGLE heads were trained on it, which inflates"
    " acceptance",
)
