"""Secrets are removed from text that specbench did not write, and what explains a failure stays readable."""

from __future__ import annotations

import base64
import json
import random
import string
from urllib.parse import quote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import JsonValue

from specbench_api.redaction import KNOWN_MIN, REDACTED, excerpt, redact, redact_json

HUB = "hf_" + "AbCdEfGhIjKlMnOpQrStUvWxYz012345"[:34]
AWS_ID, AWS_SECRET = "AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"

SHAPES = {
    "a hub token": (f"401 for {HUB}: not allowed", HUB),
    "a key ID": (f"The key {AWS_ID} does not exist", AWS_ID),
    "a secret key": (f"signing with {AWS_SECRET} failed", AWS_SECRET),
    "a session key ID": ("ASIAIOSFODNN7EXAMPLE is expired", "ASIAIOSFODNN7EXAMPLE"),
    "a variable": ("env: MY_PASSWORD=swordfish, HOME=/root", "swordfish"),
    "a field": ("{'db_password': 'swordfish and salt', 'port': 80}", "swordfish and salt"),
    "a JSON field": (json.dumps({"client_secret": "swordfish"}), "swordfish"),
    "JSON in JSON": (json.dumps(json.dumps({"api_key": "swordfish"})), "swordfish"),
    "a YAML field": ("user: me\n  token: swordfish\nport: 80", "swordfish"),
    "a field in a sentence": ("login failed with password: sword-fish-7 for me", "sword-fish-7"),
    "a field without a space": ("secret:swordfish", "swordfish"),
    "a list of keys": ("Namespace(api_key=['swordfish'], port=80)", "swordfish"),
    "a flag": ("vllm serve --api-key swordfish --port 80", "swordfish"),
    "a bearer": ("Authorization: Bearer swordfish", "swordfish"),
    "a bearer alone": ("sent 'bearer swordfish'", "swordfish"),
    "basic": ('{"authorization": "Basic c3dvcmRmaXNo"}', "c3dvcmRmaXNo"),
    "the user of a URL": ("GET https://me:swordfish@hub.example/x failed", "swordfish"),
    "a user without password": ("GET https://swordfish@hub.example/x failed", "swordfish"),
    "a signed URL": ("https://b.example/k?X-Amz-Signature=swordfish&x=1", "swordfish"),
    "a GitHub token": ("ghp_abcdefghijklmnopqrstuvwxyz0123456789", "ghp_abcdefghijklmnopqrstuvwxyz0123456789"),
    "a JSON web token": ("got eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl", "eyJzdWIiOiIxMjM0In0"),
    "hexadecimal": ("key 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822c", "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b"),
    "a private key": (
        "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\nIBAAKC\n-----END RSA PRIVATE KEY-----", "IBAAKC"),
    "a cut private key": ("-----BEGIN PRIVATE KEY-----\nMIIEow\nIBAAKC", "IBAAKC"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "secret"), SHAPES.values(), ids=SHAPES)
def test_text_with_the_form_of_a_secret_is_removed(text: str, secret: str) -> None:
    found = redact(text)
    assert secret not in found
    assert REDACTED in found
    assert redact(found) == found


READABLE = [
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.10 GiB",
    "ValueError: The model's max seq len (131072) is larger than the maximum number of tokens: 4096",
    "max_num_batched_tokens=8192, num_draft_tokens: 4, tokenizer='meta-llama/Llama-3.1-8B-Instruct', max_token=16",
    'File "/usr/local/lib/python3.12/dist-packages/vllm/v1/engine/core_client.py", line 642, in __init__',
    "OSError: /root/.cache/huggingface/hub/models--Qwen--Qwen2.5-7B-Instruct-GPTQ-Int4/config.json does not exist",
    f"Failed to pull image registry.example/vllm-openai@sha256:{'9f86d081884c7d65' * 4}: not found",
    "pod 7d0f6bd8-1111-4c4b-9d53-000000000001 of specbench-run-llama-3-8b-instruct-ngram-k4-g0-a0 was deleted",
    "error: unrecognized arguments: --speculative-tokens-per-step-of-the-drafting-model 4",
    "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}",
    "GET http://engine.default.svc:8000/health: cannot connect: [Errno 111] Connection refused",
    "the tokenizer has eos_token: <|endoftext|> and pad_token='<pad>'",
    "spec.model.tokenSecretRef: the Secret 'hub' does not exist in this namespace, or may not be used here (create it)",
    "invalid password: please correct it, or use another",
    "couldn't find key HF_TOKEN in Secret default/hub",
]


@pytest.mark.parametrize("text", READABLE)
def test_what_explains_a_failure_stays_readable(text: str) -> None:
    assert redact(text) == text


ALPHABETS = {
    "letters and digits": string.ascii_letters + string.digits,
    "base64": string.ascii_letters + string.digits + "+/",
    "base64 for URLs": string.ascii_letters + string.digits + "-_",
    "hexadecimal": "0123456789abcdef",
}


@pytest.mark.parametrize("alphabet", ALPHABETS.values(), ids=ALPHABETS)
@given(
    seed=st.integers(0, 2**32), length=st.integers(36, 200), around=st.sampled_from(["{}", "a {} b", '"{}"', "x: {}."])
)
def test_long_random_tokens_are_removed(alphabet: str, seed: int, length: int, around: str) -> None:
    draw = random.Random(seed)
    token = draw.choice(string.ascii_lowercase[:6]) + "".join(draw.choice(alphabet) for _ in range(length)) + "7a"
    assert token not in redact(around.format(token))


@given(
    value=st.text(min_size=KNOWN_MIN, max_size=60).filter(lambda text: REDACTED not in text and text not in REDACTED),
    before=st.text(max_size=40),
    after=st.text(max_size=40),
)
def test_a_known_value_never_appears_in_any_encoding(value: str, before: str, after: str) -> None:
    data = value.encode()
    in_json = json.dumps(value)[1:-1]
    coded = (base64.b64encode(data).decode(), data.hex(), quote(value, safe=""))
    forms = (value, in_json, in_json.replace("/", "\\/"), *coded)
    for form in forms:
        assert form not in redact(f"{before}{form}{after}", [value]).replace(REDACTED, "\0")


@given(st.text(max_size=300) | st.from_regex(r"(token|--api-key|Bearer|://|password)[=: ]{0,3}.{0,40}"))
@example("TOKEN=>=")
def test_redacting_twice_is_redacting_once(text: str) -> None:
    once = redact(text, ["swordfish"])
    assert redact(once, ["swordfish"]) == once


HOSTILE = [
    "a",
    "eyJ",
    "token",
    "token ",
    "://",
    "-----BEGIN PRIVATE KEY-----",
    "--a",
    "A1",
    "[redacted]",
    '"',
    "bearer  ",
]


@pytest.mark.draws
@pytest.mark.parametrize("piece", HOSTILE)
def test_hostile_text_costs_linear_time(piece: str) -> None:
    """A pattern with quadratic cost would need hours for this."""
    redact(piece * (2_000_000 // len(piece)))


def test_values_of_facts_are_redacted_by_their_name_and_hashes_are_kept() -> None:
    commit = "0e9e39f249a16976918f6564b8830bc894c89659"
    facts: JsonValue = {
        "revision": commit,
        "hf_token": "swordfish",
        "api_key": None,
        "max_tokens": 16,
        "command": ["serve", "--api-key", "swordfish", "--model", HUB, "--key=known value"],
    }
    assert redact_json(facts, ["known value"]) == {
        "revision": commit,
        "hf_token": REDACTED,
        "api_key": None,
        "max_tokens": 16,
        "command": ["serve", "--api-key", REDACTED, "--model", REDACTED, f"--key={REDACTED}"],
    }


VLLM = "\n".join(
    [
        "INFO 12:00:00 core.py:58] Initializing a V1 LLM engine",
        *(
            f'  File "/usr/lib/python3.12/site-packages/vllm/v1/worker/{row}.py", line {row}, in load'
            for row in range(40)
        ),
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
        *(f'  File "/usr/lib/python3.12/multiprocessing/{row}.py", line {row}, in run' for row in range(20)),
        "RuntimeError: Engine core initialization failed. See root cause above.",
        "[rank0]: warnings.warn(resource_tracker)",
    ]
)


def test_an_excerpt_contains_the_lines_that_name_the_error() -> None:
    found = excerpt(VLLM, 200)
    assert "CUDA out of memory" in found
    assert len(found) <= 200


@given(text=st.text(max_size=600), most=st.integers(10, 300))
def test_an_excerpt_is_short(text: str, most: int) -> None:
    assert len(excerpt(text, most)) <= most


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("short", "short"),
        ("a\n\n  b\n", "a\n  b"),
        ("x" * 60, "…" + "x" * 19),
        ("one\ntwo\nthree three three", "…\nthree three three"),
    ],
)
def test_an_excerpt_keeps_the_end(text: str, found: str) -> None:
    assert excerpt(text, 20) == found
