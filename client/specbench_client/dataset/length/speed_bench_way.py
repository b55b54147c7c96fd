"""Length control exactly as SPEED-Bench's own preparation does it, to reproduce its prompts byte for byte. Pure.

A prompt that is too long loses its end, whatever stands there: the instruction may be cut, and a character may be cut
in half (it becomes U+FFFD). One that is too short ends with a sentence, again and again. For prompts of one's own,
`fit` does neither. (NVIDIA/Model-Optimizer, examples/specdec_bench, datasets/speed.py, `_pad_or_truncate_prompt`.)
"""

from __future__ import annotations

from specbench_client.dataset.length.ruler import Ruler

PADDING = "Answer now please.\n"


def pad_or_truncate(text: str, target: int, ruler: Ruler) -> str:
    """The first `target` tokens of the text; of the text with so many paddings as reach it, where it is too short."""
    tokens = ruler.encode_ordinary(text)
    if len(tokens) == target:
        return text
    if len(tokens) < target:
        one = len(ruler.encode_ordinary(PADDING))
        tokens = ruler.encode_ordinary(text + PADDING * -(-(target - len(tokens)) // one))
    return ruler.decode_bytes(tokens[:target]).decode("utf-8", errors="replace")
