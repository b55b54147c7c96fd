"""ShareGPT: the first message of people who talked with a chat bot."""

from __future__ import annotations

from specbench_api.spec.dataset import Selection
from specbench_client.workload.reading import BadRow
from specbench_client.workload.rows import Row
from specbench_client.workload.sources.source import Columns, Hub, LeftOut, Loader, always, asked

LEAST_TURNS = 2
_HUMAN = ("human", "user")
_FILE = "ShareGPT_V3_unfiltered_cleaned_split.json"


def _convert(row: Row, _: Selection) -> Columns:
    found = row.columns.get("conversations")
    if not isinstance(found, list):
        raise BadRow("the column conversations is missing: ShareGPT's rows have a list of messages")
    if len(found) < LEAST_TURNS:
        raise LeftOut("fewer than two messages")
    first = found[0]
    if not isinstance(first, dict) or not isinstance(first.get("value"), str):
        raise BadRow("conversations[0] is no message with from and value")
    if first.get("from") not in _HUMAN:
        raise LeftOut("does not begin with a person's message")
    if not first["value"].strip():
        raise LeftOut("begins with an empty message")
    return asked(first["value"], row, "id", category="chat")


LOADER = Loader(
    what="ShareGPT: first messages of real conversations (about 94,000)",
    columns=("id", "conversations"),
    template="`conversations[0].value` alone",
    licence="Apache-2.0 by its uploader; the text is its users'",
    convert=_convert,
    hub=always(Hub("anon8231489123/ShareGPT_Vicuna_unfiltered", "train", file=_FILE)),
    note="rows of fewer than two messages, and those that do not begin with a person's, are left out and counted; for"
    " the field's lengths add `inputTokens: {min: 4, max: 1024}`. EAGLE heads were trained on it: acceptance is"
    " flattered",
)
