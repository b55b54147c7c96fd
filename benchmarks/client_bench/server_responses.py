"""Builds the clock server's responses: the bytes of its streams and pages, cached. Pure.

The bodies have vLLM's format: a role chunk, content chunks of about 280 bytes with continuous usage, a finish reason, a
usage chunk, [DONE]. The role chunk is part of the first content chunk's `send()`, and everything after the last content
chunk is part of its `send()`, so that all definitions of first and last token give the same time. The first content is
the request's number, which identifies an answer if the client sends no X-Request-Id.
"""

from __future__ import annotations

import json
from functools import lru_cache

MODEL = "clock"
PROMPT_TOKENS = 32
NUMBER = b"@@@@@@@@@@@@@@@@"
"""A placeholder for the request's number, with the same width."""
STREAM_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
_CREATED_S = 1767225600


def header_fields(head: bytes) -> dict[str, str]:
    """Parse the header fields of a request, with names in lower case."""
    rows = (line.split(b":", 1) for line in head.split(b"\r\n")[1:] if b":" in line)
    return {name.strip().lower().decode(): value.strip().decode() for name, value in rows}


def length(number: int, most: int) -> int:
    """Return an answer's tokens: at least half of the requested number, so that streams end at different times."""
    return most - (number * 2654435761 % 2**32) * (most // 2) // 2**32


@lru_cache(maxsize=4096)
def pieces(tokens: int, most: int) -> tuple[bytes, ...]:
    """Return the bytes of each `send()` of an answer, in HTTP's chunked encoding."""
    *middle, last = range(1, tokens + 1)
    reason = "length" if tokens == most else "stop"
    end = _chunk(None, tokens) + _framed(b"data: [DONE]\n\n") + b"0\r\n\r\n"
    return (*(_content(done) for done in middle), _content(last, reason) + end)


@lru_cache(maxsize=8192)
def _content(done: int, reason: str | None = None) -> bytes:
    """Return the content chunk that completes `done` tokens; the first one follows a role chunk."""
    text = NUMBER.decode() if done == 1 else f" word{done % 10}"
    choice = {"index": 0, "logprobs": None, "finish_reason": reason, "token_ids": None}
    role = _chunk({**choice, "delta": {"role": "assistant", "content": ""}}, 0) if done == 1 else b""
    return role + _chunk({**choice, "delta": {"content": text}}, done)


def _chunk(choice: dict[str, object] | None, done: int) -> bytes:
    document = {
        "id": f"chatcmpl-{NUMBER.decode()}",
        "object": "chat.completion.chunk",
        "created": _CREATED_S,
        "model": MODEL,
        "choices": [choice] if choice else [],
        "usage": _usage(done),
    }
    return _framed(b"data: " + json.dumps(document, separators=(",", ":")).encode() + b"\n\n")


def _framed(event: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(event), event)


def _usage(tokens: int) -> dict[str, int]:
    return {"prompt_tokens": PROMPT_TOKENS, "total_tokens": PROMPT_TOKENS + tokens, "completion_tokens": tokens}


def whole(tokens: int) -> bytes:
    """Return the response to a request without streaming, which clients send only before a run."""
    choice = {"index": 0, "message": {"role": "assistant", "content": "word"}, "finish_reason": "length"}
    head = {"id": "chatcmpl-0", "object": "chat.completion", "created": _CREATED_S, "model": MODEL}
    return _response(json.dumps({**head, "choices": [choice], "usage": _usage(tokens)}))


def page(path: str, requests: int, tokens: int) -> bytes:
    """Return a page that clients request before or after a run: models, version or counters; empty for others."""
    if path.startswith("/v1/models"):
        row = {"id": MODEL, "object": "model", "created": 0, "owned_by": "benchmark", "max_model_len": 131072}
        return _response(json.dumps({"object": "list", "data": [row]}))
    if path.startswith("/version"):
        return _response(json.dumps({"version": "clockserver"}))
    if path.startswith("/metrics"):
        prompt = PROMPT_TOKENS * requests
        counters = {"vllm:generation_tokens_total": tokens, "vllm:prompt_tokens_total": prompt}
        return _response("".join(f"{name} {count}\n" for name, count in counters.items()), "text/plain")
    return _response("")


def _response(text: str, kind: str = "application/json") -> bytes:
    body = text.encode()
    return b"HTTP/1.1 200 OK\r\ncontent-type: %s\r\ncontent-length: %d\r\n\r\n%s" % (kind.encode(), len(body), body)
