"""What is detected of a running endpoint, and its first completion."""

from __future__ import annotations

import asyncio
import json
import re
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web

from specbench_api.plan.expansion import expand, lay_out
from specbench_api.plan.plan import Arm
from specbench_api.spec.engine import DialectName, Endpoint, EngineKind
from specbench_api.spec.workload import Output, Sampling
from specbench_client.chat import ChatMessage
from specbench_client.dialects.dialect import Dialect, EngineIdentity
from specbench_client.dialects.recognition import EndpointPages, base_models, engine_url, recognize
from specbench_client.dialects.registry import DIALECTS
from specbench_client.drive.endpoint_detection import (
    SIGNATURES,
    DetectedEndpoint,
    detect_endpoint,
    unreported_acceptance,
)
from specbench_client.drive.engine_connection import (
    COUNTER_READINGS,
    FIRST_COMPLETION_PAUSE_S,
    FIRST_MESSAGE,
    EngineConnection,
    FieldRejected,
    address_hint,
    first_completion,
    first_messages,
)
from specbench_client.drive.load_probes import probe_completion
from specbench_client.errors import BadInput, EngineFailed
from specbench_client.known_secrets import key_remedy
from specbench_client.simulator import SimulatedMethod, SimulatorConfig, make_drafter
from specbench_client.transport.control_client import ControlClient
from specbench_client.transport.error_class import ErrorClass
from specbench_client.transport.error_messages import REDIRECT_REMEDY
from specbench_client.transport.exchange import HttpExchange, HttpRequest
from specbench_client.workload.prompts import Prompts
from specbench_client.workload.row_parsing import Prompt
from specbench_testing.closing_servers import ClosingTestServer, accepting
from specbench_testing.conversation_turns import CannedTransport, context
from specbench_testing.engine_streams import DecodedAnswer, StreamStep, arrivals, sse, vllm
from specbench_testing.ports import free_port
from specbench_testing.resources import MISSING, external_engine, run_of
from specbench_testing.scripted_server import Script, response, serve_scripts
from specbench_testing.simulated_groups import simulator

Pages = Mapping[str, Any]


@pytest.fixture(autouse=True)
def no_pause_between_first_completions() -> None:
    """Keep the pauses: here they are checked, and awaited by none."""


def models(owner: str, *rows: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    listed = [{"object": "model", "created": 1795707995, "owned_by": owner, **more, **row} for row in rows]
    return {"object": "list", "data": listed}


# vLLM: lists and /server_info as in the source of 0.33.0; metrics recorded from 0.32.0 with ngram, k=4.
VLLM_METRICS = "".join(
    f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{engine="0",model_name="smol",position="{at}"}} 3.0\n'
    for at in range(4)
) + (
    'vllm:spec_decode_num_drafts_total{engine="0",model_name="smol"} 2.0\n'
    'vllm:generation_tokens_total{engine="0",model_name="smol"} 9.0\n'
)
VLLM = {
    "/v1/models": models("vllm", {"id": "Qwen/Qwen3-8B"}, root="Qwen/Qwen3-8B", parent=None, max_model_len=40960),
    "/version": {"version": "0.33.0"},
    "/metrics": VLLM_METRICS,
}
VLLM_BASELINE = {**VLLM, "/metrics": 'vllm:generation_tokens_total{engine="0",model_name="smol"} 9.0\n'}
VLLM_DEVELOPMENT = {
    **VLLM,
    "/server_info": {
        "vllm_config": "speculative_config=SpeculativeConfig(method='ngram', model=None, num_spec_tokens=4)"
    },
}
# SGLang: as in the source of 0.5.23.
SGLANG = {
    "/v1/models": models("sglang", {"id": "Qwen/Qwen3-8B"}, root="Qwen/Qwen3-8B", parent=None, max_model_len=40960),
    "/server_info": {
        "model_path": "Qwen/Qwen3-8B",
        "speculative_algorithm": "EAGLE3",
        "speculative_num_steps": 3,
        "speculative_num_draft_tokens": 4,
        "internal_states": [{}],
        "version": "0.5.23",
    },
    "/metrics": "sglang:num_running_reqs 0.0\n",
}
# TensorRT-LLM: as in sources of 1.2.
TENSORRT_LLM = {
    "/v1/models": models("tensorrt_llm", {"id": "Qwen3-8B"}),
    "/version": {"version": "1.2.1"},
    "/prometheus/metrics": 'trtllm_request_success_total{model_name="m",engine_type="trtllm"} 1.0\n',
}
# llama.cpp: recorded from the server of xllamacpp 2026.10.11549 with --spec-type ngram-simple.
LLAMA_CPP = {
    "/v1/models": models("llamacpp", {"id": "smol", "aliases": ["smol"], "tags": ["xllamacpp-2026.10.11549"]}),
    "/props": {"default_generation_settings": {"n_ctx": 1024}, "total_slots": 2, "build_info": "b0-unknown"},
    "/slots": [{"id": 0, "n_ctx": 1024, "speculative": True, "is_processing": False}],
    "/metrics": "llamacpp:prompt_tokens_total 0\n",
}
GATEWAY = {"/v1/models": models("openai", {"id": "gpt"})}


@asynccontextmanager
async def serving(
    pages: Pages, tls: ssl.SSLContext | None = None, requested: list[str] | None = None, **headers: str
) -> AsyncIterator[str]:
    """Serve these pages, each a JSON document, text, or a status with a text; everything else is answered with 404.

    `requested` collects the requested paths.
    """

    async def answer(request: web.Request) -> web.Response:
        if requested is not None:
            requested.append(request.path)
        page = pages.get(request.path, (404, '{"detail": "Not Found"}'))
        status, body = page if isinstance(page, tuple) else (200, page)
        text = body if isinstance(body, str) else json.dumps(body)
        return web.Response(status=status, text=text, headers=headers)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    server = ClosingTestServer(app)
    await server.start_server(ssl=tls)
    try:
        yield f"{'https' if tls else 'http'}://localhost:{server.port}"
    finally:
        await server.close()


async def detect(url: str, headers: Mapping[str, str] | None = None, **options: Any) -> DetectedEndpoint:
    return await detect_endpoint(url, headers or {}, patience_s=0, **options)


UNKNOWN = "speculative decoding not reported"


@pytest.mark.parametrize(
    ("pages", "dialect", "line"),
    [
        (VLLM, DialectName.VLLM, "vLLM 0.33.0, model Qwen/Qwen3-8B, drafter k=4"),
        (VLLM_DEVELOPMENT, DialectName.VLLM, "vLLM 0.33.0, model Qwen/Qwen3-8B, drafter ngram k=4"),
        (VLLM_BASELINE, DialectName.VLLM, "vLLM 0.33.0, model Qwen/Qwen3-8B, no speculative decoding"),
        (SGLANG, DialectName.SGLANG, "SGLang 0.5.23, model Qwen/Qwen3-8B, drafter EAGLE3 k=3"),
        (
            TENSORRT_LLM,
            DialectName.TENSORRT_LLM,
            f"TensorRT-LLM 1.2.1, model Qwen3-8B, {UNKNOWN}",
        ),
        (
            LLAMA_CPP,
            DialectName.LLAMA_CPP,
            "llama.cpp xllamacpp-2026.10.11549, model smol, speculative decoding on (method not reported)",
        ),
        (
            GATEWAY,
            DialectName.OPENAI,
            f"OpenAI API of openai (unknown version), model gpt, {UNKNOWN}",
        ),
        (
            {**SGLANG, "/v1/models": models("a gateway", {"id": "m"})},
            DialectName.SGLANG,
            "SGLang API of a gateway 0.5.23, model m, drafter EAGLE3 k=3",
        ),
        (
            {"/v1/models": models("vllm", {"id": "m"})},
            DialectName.VLLM,
            f"vLLM (unknown version), model m, {UNKNOWN}",
        ),
    ],
)
async def test_engine_is_recognised_from_its_pages(pages: Pages, dialect: DialectName, line: str) -> None:
    async with serving(pages) as url:
        found = await detect(url)
    assert (found.dialect, found.line()) == (dialect, line)
    assert found.most_at_once == (2 if pages is LLAMA_CPP else None)


@pytest.mark.parametrize("folder", ["/models/org/", "~/models/", "./", "C:\\\\models\\\\"])
async def test_model_listed_by_its_path_is_shown_by_its_file(folder: str) -> None:
    model = f"{folder}SmolLM2.F16.gguf"
    async with serving({**LLAMA_CPP, "/v1/models": models("llamacpp", {"id": model})}) as url:
        found = await detect(url)
    assert "model SmolLM2.F16.gguf, " in found.line()
    assert found.model == model, "requests need the whole name"


@pytest.mark.parametrize(
    ("pages", "expected"),
    [
        (EndpointPages(server="llama.cpp"), DialectName.LLAMA_CPP),
        (EndpointPages(metrics={"/metrics": "# HELP\nvllm:num_requests_running 0"}), DialectName.VLLM),
        (EndpointPages(metrics={"/metrics": "sglang:num_running_reqs 0"}), DialectName.SGLANG),
        (EndpointPages(metrics={"/metrics": "llamacpp:n_decode_total 0"}), DialectName.LLAMA_CPP),
        (EndpointPages(metrics={"/prometheus/metrics": "trtllm_request_success_total 0"}), DialectName.TENSORRT_LLM),
        (EndpointPages({"/props": {"default_generation_settings": {}}}), DialectName.LLAMA_CPP),
        (EndpointPages({"/server_info": {"internal_states": []}}), DialectName.SGLANG),
        (EndpointPages({"/server_info": {"vllm_config": ""}}), DialectName.VLLM),
    ],
)
def test_each_fact_alone_identifies_its_engine(pages: EndpointPages, expected: DialectName) -> None:
    assert list(recognize(pages, SIGNATURES)) == [expected]


@pytest.mark.parametrize(
    "pages",
    [
        EndpointPages(),
        EndpointPages({"/v1/models": None, "/props": ["default_generation_settings"]}, {"/metrics": None}),
        EndpointPages(
            {"/v1/models": {"data": [7, {"id": "m", "owned_by": None}]}}, {"/metrics": "other_vllm:x 1"}, "nginx"
        ),
        EndpointPages({"/v1/models": {"data": [{"id": "m", "owned_by": ["vllm"]}]}}),
    ],
)
def test_other_pages_identify_no_engine(pages: EndpointPages) -> None:
    assert recognize(pages, SIGNATURES) == {}


async def test_engine_that_drafts_without_reporting_it_is_flagged_with_the_flag_to_set(tmp_path: Path) -> None:
    config = SimulatorConfig(drafter=make_drafter(SimulatedMethod.NGRAM, 4), time_scale=0.01, spec_detail="none")
    plan = lay_out(
        run_of({"spec.engine": external_engine(dialect=DialectName.VLLM).to_dict(), "spec.drafters": MISSING})
    )
    async with simulator(tmp_path / "truth.jsonl", config) as engine:
        found = await detect(engine.url)
        endpoint = Endpoint(name="endpoint", url=engine.url, model=found.model)
        result = await probe_completion(plan, Arm(name="endpoint", endpoint=endpoint), {})
    warning = unreported_acceptance(found.dialect, result)
    assert warning is not None
    assert warning.endswith("start vLLM with --per-request-spec-decode-metrics detailed")


@pytest.mark.parametrize("host", ["localhost", "engine.invalid"], ids=["closed port", "unknown host"])
async def test_unreachable_host(host: str) -> None:
    url = f"http://{host}:{free_port()}"
    assert (await failure_of(url)).endswith(f"start the engine, or correct the host and port of {url}")


async def test_contradictory_pages_are_left_to_the_user() -> None:
    pages = {**GATEWAY, "/metrics": "vllm:generation_tokens_total 1\nsglang:num_running_reqs 0\n"}
    async with serving(pages) as url:
        with pytest.raises(BadInput, match=r"several engines: vllm .* sglang .* give the right one with --dialect"):
            await detect(url)
        assert (await detect(url, dialect=DialectName.SGLANG)).dialect is DialectName.SGLANG


async def test_metrics_of_tensorrt_llm_are_not_cleared() -> None:
    requested: list[str] = []
    pages = {**TENSORRT_LLM, "/v1/models": models("a gateway", {"id": "m"})}
    async with serving(pages, requested=requested) as url:
        assert (await detect(url)).dialect is DialectName.TENSORRT_LLM
    assert "/metrics" not in requested


# Models.


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([], []),
        ([{"id": "a"}], ["a"]),
        ([{"id": "a"}, {"id": "b"}], ["a", "b"]),
        ([{"id": "a", "root": "/m"}, {"id": "b", "root": "/m"}], ["a"]),
        ([{"id": "a", "root": "a", "parent": None}, {"id": "lora", "root": "/lora", "parent": "a"}], ["a"]),
    ],
)
def test_adapters_and_second_names_are_not_further_models(rows: list[dict[str, Any]], expected: list[str]) -> None:
    assert base_models({"data": rows}) == expected


async def test_user_chooses_among_several_models() -> None:
    pages = {"/v1/models": models("vllm", *({"id": f"m{n}"} for n in range(7)))}
    async with serving(pages) as url:
        with pytest.raises(BadInput, match="serves 7 models: choose one with --model: m0, m1, m2, m3, m4 and 2 more"):
            await detect(url)
        named = await detect(url, model="m5")
        assert named.model is None
        other = await detect(url, model="gpt-4")
        listed = "m0, m1, m2, m3, m4 and 2 more"
        assert (named.unlisted, other.unlisted) == ("", listed), "llama.cpp answers whatever model is named"
        assert (listed in named.line(), listed in other.line()) == (False, True)


# Addresses.


@pytest.mark.parametrize(
    "path", ["", "/", "/v1", "/v1/", "//v1", "/v1/chat/completions", "/v1/completions", "/v1/models"]
)
@pytest.mark.parametrize("base", ["http://h:8000", "https://h/engines/a"])
def test_routes_of_openai_clients_are_removed_from_an_address(base: str, path: str) -> None:
    assert engine_url(base + path) == base


@pytest.mark.parametrize(
    "address",
    [
        "http://h:8000/v11",
        "http://h/av1",
        "http://v1",
        "http://h/v1/engine",
        "http://h/v1/chat/completions/",
        "http://h/openai/deployments/m/chat/completions/",
    ],
)
def test_other_paths_are_kept(address: str) -> None:
    assert engine_url(address) == address


# Faults: each is answered with what to do.


async def failure_of(url: str, headers: Mapping[str, str] | None = None, **options: Any) -> str:
    with pytest.raises(EngineFailed) as caught:
        await detect(url, headers, **options)
    return str(caught.value)


async def test_https_to_a_port_that_speaks_http() -> None:
    async with serving(VLLM) as url:
        host = url.removeprefix("http://")
        message = await failure_of(f"https://{host}/v1")
    assert message == f"{host} does not accept https: give http://{host}"


async def test_http_to_a_port_that_speaks_https(tls: ssl.SSLContext) -> None:
    async with serving(VLLM, tls) as url:
        host = url.removeprefix("https://")
        message = await failure_of(f"http://{host}/engine/v1")
    assert message == f"{host} does not accept http: give https://{host}/engine"


async def test_http_that_a_tls_server_answers_with_400(tls: ssl.SSLContext) -> None:
    """nginx and Go answer plain HTTP on a port with TLS."""
    async with serving(VLLM, tls) as url:
        port = int(url.rpartition(":")[2])

        async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            first = await reader.read(1)
            if first != b"\x16":  # not a TLS handshake
                page = b"<html><head><title>400 The plain HTTP request was sent to HTTPS port</title></head></html>"
                writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: %d\r\n\r\n%s" % (len(page), page))
                return
            answers, onward = await asyncio.open_connection("localhost", port)
            onward.write(first + await reader.read(65536))
            writer.write(await answers.read(65536))
            while data := await reader.read(65536):
                onward.write(data)
            onward.close()

        async with accepting(relay, host="localhost") as relayed:
            message = await failure_of(relayed)
    assert "does not accept http: give https://localhost" in message


async def test_untrusted_certificate(tls: ssl.SSLContext) -> None:
    async with serving(VLLM, tls) as url:
        assert "SSL_CERT_FILE" in await failure_of(url)


@pytest.mark.parametrize("status", [401, 403])
async def test_missing_and_rejected_key(status: int) -> None:
    async with serving({"/v1/models": (status, '{"error": "Unauthorized"}')}) as url:
        assert await failure_of(url) == f"GET {url}/v1/models: HTTP {status}: Unauthorized: {key_remedy()}"


async def test_a_key_that_may_not_list_models_is_no_failure_if_the_model_is_named() -> None:
    async with serving({"/v1/models": (403, '{"error": {"message": "Missing scopes: api.model.read"}}')}) as url:
        assert (await detect(url, model="m")).dialect == "openai"
        assert "Missing scopes" in await failure_of(url)
    async with serving({"/v1/models": (401, "{}")}) as url:
        assert "HTTP 401" in await failure_of(url, model="m")


async def test_wrong_path_is_answered_with_the_address_that_serves_models() -> None:
    async with serving(VLLM) as url:
        message = await failure_of(f"{url}/api")
    assert message == f"GET {url}/api/v1/models: HTTP 404: Not Found: give {url}, which serves Qwen/Qwen3-8B"


HTML = "<!doctype html>\n<html><head><title>\nWelcome to nginx!\x1b</title></head></html>"
PROXY = "give the address of the engine itself, with its port and, behind a proxy, its path"


@pytest.mark.parametrize(
    ("answer", "end"),
    [
        ((404, "{}"), "or name the model with --model if the server lists none"),
        ((200, HTML), rf"HTML page (Welcome to nginx!\x1b), of a proxy, a login or a web interface: {PROXY}"),
        ((502, HTML), PROXY),
        ((503, HTML), PROXY),
        *((body, PROXY) for body in ("ok", "[]", '{"status": "ok"}')),
    ],
)
async def test_answer_that_is_no_list_of_models(answer: Any, end: str) -> None:
    async with serving({"/v1/models": answer}) as url:
        assert (await failure_of(url)).endswith(end)


@pytest.mark.parametrize(
    ("location", "address"),
    [
        ("/v1/models", ""),
        ("/v1/models/?api-version=1", "?api-version=1"),
        ("/v1/models?page=1", ""),
        ("/openai/models?api-version=1", "/openai/chat/completions?api-version=1"),
        ("/login?next=/v1/models", "/login"),
    ],
)
async def test_redirect_to_another_server_names_the_address_of_its_engine(location: str, address: str) -> None:
    engine = "https://engine.example"
    async with serving({"/v1/models": (308, "")}, Location=f"{engine}{location}") as url:
        assert (await failure_of(url)).endswith(f"{engine}{location}: give {engine}{address} if that is the engine")
    assert Endpoint(name="e", url=f"{engine}{address}").url == f"{engine}{address}", "the address is accepted"


@pytest.mark.parametrize("location", ["/v1/models", "?page=1", "ftp://h/v1/models", "file:///etc/hosts", "http://[bad"])
async def test_redirect_to_itself_or_to_no_address_is_no_advice(location: str) -> None:
    async with serving({"/v1/models": (302, "")}, Location=location) as url:
        target = f"{url}/v1/models{location.removeprefix('/v1/models')}" if location[0] in "/?" else location
        assert (await failure_of(url)).endswith(f"redirected to {target}: {REDIRECT_REMEDY}")


async def test_engine_that_is_loading_is_awaited() -> None:
    loading = {"/v1/models": (503, '{"error": {"message": "Loading model", "code": 503}}')}
    async with serving(loading) as url:
        assert (await failure_of(url)).endswith("Loading model: wait until the engine has loaded its model")
    pages: dict[str, Any] = dict(loading)
    async with serving(pages) as url:
        found = asyncio.create_task(detect_endpoint(url, {}, patience_s=30))
        await asyncio.sleep(0)
        pages.update(VLLM_BASELINE)
        assert (await found).model == "Qwen/Qwen3-8B"


HI = [ChatMessage("user", "hi")]
WHOLE = HttpExchange(1, arrivals(sse(vllm(DecodedAnswer((StreamStep(),))))), 200, {}, 9)


async def test_first_completion_requests_8_tokens_and_returns_their_text() -> None:
    wire = CannedTransport(WHOLE)
    result = await first_completion(context(wire), HI)
    assert result.record.output_text == "word word "
    assert (result.record.phase, result.record.prompt_id) == ("warmup", "first-completion")
    body = json.loads(wire.requests[0].body)
    assert body["max_tokens"] == 8
    assert wire.requests[0].headers["X-Request-Id"].startswith("p-first-")


async def test_rejected_first_completion_fails_with_the_engines_message() -> None:
    rejection = replace(WHOLE, status=404, error_class=ErrorClass.HTTP_4XX, error="HTTP 404: no model named simulated")
    wire = CannedTransport(rejection)
    with pytest.raises(EngineFailed, match=r"\(http_4xx\): HTTP 404: no model named simulated") as caught:
        await first_completion(context(wire), HI)
    assert caught.value.reason == "FirstRequestFailed"
    assert len(wire.requests) == 1


TRANSIENT = [ErrorClass.HTTP_5XX, ErrorClass.RATE_LIMITED, ErrorClass.RESET, ErrorClass.REFUSED]


class FailingTransport(CannedTransport):
    """Fails a number of times with one error class, then answers."""

    def __init__(self, error_class: ErrorClass, times: int) -> None:
        super().__init__(WHOLE)
        self.failures = [replace(WHOLE, status=None, error_class=error_class, error="not yet")] * times

    async def exchange(self, request: HttpRequest) -> HttpExchange:
        answer = await super().exchange(request)
        return self.failures.pop() if self.failures else answer


class Pauses(list[float]):
    """Records pauses between attempts without waiting."""

    async def __call__(self, seconds: float) -> None:
        self.append(seconds)


@pytest.mark.parametrize("error_class", TRANSIENT)
async def test_transient_failure_is_retried_after_a_pause(error_class: ErrorClass) -> None:
    wire, pauses = FailingTransport(error_class, times=2), Pauses()
    result = await first_completion(context(wire), HI, pause=pauses)
    assert result.record.output_text == "word word "
    assert len({request.headers["X-Request-Id"] for request in wire.requests}) == 3
    assert pauses == [FIRST_COMPLETION_PAUSE_S, FIRST_COMPLETION_PAUSE_S]


@pytest.mark.parametrize("error_class", TRANSIENT)
async def test_persistent_failure_is_reported_with_the_number_of_attempts(error_class: ErrorClass) -> None:
    wire = FailingTransport(error_class, times=9)
    with pytest.raises(EngineFailed, match=rf"\({error_class}, 3 times\): not yet"):
        await first_completion(context(wire), HI, pause=Pauses())
    assert len(wire.requests) == 3


@pytest.mark.parametrize("error_class", [one for one in ErrorClass if one not in TRANSIENT])
async def test_permanent_failure_is_not_retried(error_class: ErrorClass) -> None:
    wire, pauses = FailingTransport(error_class, times=1), Pauses()
    with pytest.raises(EngineFailed):
        await first_completion(context(wire), HI, pause=pauses)
    assert (len(wire.requests), pauses) == (1, [])


async def test_answer_without_a_token_is_a_failure() -> None:
    chunks = vllm(DecodedAnswer())
    for chunk in chunks:
        chunk.pop("usage", None)
        for choice in chunk["choices"]:
            choice["delta"]["content"] = ""
    chunks[-1]["usage"] = {"completion_tokens": 0}
    with pytest.raises(EngineFailed, match="returned no tokens"):
        await first_completion(context(CannedTransport(replace(WHOLE, arrivals=arrivals(sse(chunks))))), HI)


@pytest.mark.parametrize(
    ("served", "hint"),
    [
        (["a", "b"], ": http://h:1 serves a, b, but not m: correct --model"),
        (list("abcdefg"), ": http://h:1 serves a, b, c, d, e and 2 more, but not m: correct --model"),
        (["a", "m"], ""),
        ([], ": http://h:1/v1/chat/completions is requested: if the server has another path, give --endpoint up to"),
    ],
    ids=str,
)
async def test_failure_names_what_the_endpoint_serves(served: list[str], hint: str) -> None:
    plan = lay_out(run_of({"spec.engine": external_engine(url="http://h:1").to_dict(), "spec.drafters": MISSING}))
    async with ControlClient("http://h:1") as control:
        dialect = Dialect()
        engine = EngineConnection(plan, plan.arms[0], "http://h:1", "m", dialect, control, EngineIdentity())
        assert address_hint(engine, served).startswith(hint)
        assert bool(address_hint(engine, served)) == bool(hint)


LIST = models("me", {"id": "m"})
NO_LIST = (404, '{"detail": "Not Found"}')


@pytest.mark.parametrize(
    ("address", "pages", "options", "url"),
    [
        ("", {"/v1/models": LIST["data"]}, {}, ""),
        ("", {"/v1/models": "\ufeff" + json.dumps(LIST)}, {}, ""),
        ("", {}, {"model": "m"}, ""),
        ("", {"/v1/models": (405, "no")}, {"model": "m"}, ""),
        ("", {"/v1/models": {"models": ["m"]}}, {"model": "m"}, ""),
        ("/v1beta/openai", {"/v1beta/openai/models": LIST}, {}, "/v1beta/openai/chat/completions"),
        ("/api/v1", {"/api/v1/models": LIST}, {}, "/api"),
        (
            "/openai/deployments/m/chat/completions?api-version=2024-10-21",
            {"/openai/deployments/m/models": LIST},
            {},
            "/openai/deployments/m/chat/completions?api-version=2024-10-21",
        ),
        ("/chat/completions", {}, {"model": "m"}, "/chat/completions"),
    ],
    ids=["bare list", "BOM", "no list", "405", "another form", "no /v1", "below a path", "Azure", "no /v1, no list"],
)
async def test_routes_and_lists_of_gateways(address: str, pages: Pages, options: Mapping[str, Any], url: str) -> None:
    async with serving(pages) as server:
        found = await detect(f"{server}{address}", **options)
    assert (found.model, found.url) == (None if "model" in options else "m", f"{server}{url}")


async def test_without_a_list_the_model_must_be_named() -> None:
    async with serving({}) as url:
        with pytest.raises(EngineFailed, match="--model"):
            await detect(url)


REJECTIONS = {
    "OpenAI": ("Unsupported parameter: 'max_tokens' is not supported. Use 'max_completion_tokens' instead.",
               "max_tokens", {"max_tokens": None, "max_completion_tokens": 16}),
    "LiteLLM": ("bedrock does not support parameters: ['seed'], for model=x.", "seed", {"seed": None}),
    "vLLM": ("[{'loc': ('body', 'stream_options'), 'msg': 'Extra inputs are not permitted'}]",
             "stream_options", {"stream_options": None}),
    "Gemini": ('Invalid JSON payload received. Unknown name "seed": Cannot find field.', "seed", {"seed": None}),
    "Mistral": ("Extra fields are not permitted: seed, stream_options", "seed", {"seed": None}),
    "serde": ("unknown field `stream_options`, expected one of `model`, `messages`, `seed`",
              "stream_options", {"stream_options": None}),
    "NestJS": ('Bad Request: ["property seed should not exist"]', "seed", {"seed": None}),
}  # fmt: skip


def rejecting(message: str) -> CannedTransport:
    error = f"HTTP 400: {message}"
    return CannedTransport(replace(WHOLE, status=400, arrivals=(), error_class=ErrorClass.HTTP_4XX, error=error))


@pytest.mark.parametrize("server", REJECTIONS)
async def test_a_field_that_a_server_rejects_by_name_can_be_left_out(server: str) -> None:
    message, field, changes = REJECTIONS[server]
    with pytest.raises(FieldRejected) as caught:
        await first_completion(context(rejecting(message)), HI)
    assert (caught.value.field, caught.value.changes, caught.value.harmless) == (field, changes, True)
    assert message in caught.value.words
    assert f"--extra-body '{json.dumps(changes)}'" in str(caught.value)
    (line,) = re.findall("`([^`]+)` in each workload", str(caught.value))
    assert yaml.safe_load(line) == {"extraBody": changes}
    with pytest.raises(EngineFailed) as again:
        await first_completion(context(rejecting(message), extra_body=changes), HI)
    assert not isinstance(again.value, FieldRejected)


@pytest.mark.parametrize(
    ("message", "field"),
    [
        ("Unsupported value: 'temperature' does not support 0 with this model.", "temperature"),
        ("max_tokens is not supported", "max_tokens"),
        ("`temperature` and `top_p` cannot both be specified for this model. Please use only one.", "top_p"),
        ("Input validation error: `top_p` must be > 0.0 and < 1.0", "top_p"),
    ],
)
async def test_a_field_that_determines_what_is_measured_is_only_named(message: str, field: str) -> None:
    with pytest.raises(FieldRejected) as caught:
        await first_completion(context(rejecting(message)), HI)
    assert (caught.value.field, caught.value.harmless) == (field, False)


@pytest.mark.parametrize(
    "message",
    [
        "'max_tokens' or 'max_completion_tokens' is too large: 4096. The maximum context length is 2048 tokens",
        "seed must be positive",
        "Unexpected message role.",
    ],
)
async def test_other_rejections_name_no_field(message: str) -> None:
    with pytest.raises(EngineFailed) as caught:
        await first_completion(context(rejecting(message)), HI)
    assert not isinstance(caught.value, FieldRejected)


LIMITED = replace(
    WHOLE, status=429, arrivals=(), headers={"retry-after": "30"}, error_class=ErrorClass.RATE_LIMITED, error="HTTP 429"
)


async def test_a_rate_limit_is_waited_for_as_the_server_asks_up_to_a_limit() -> None:
    wire, pauses = FailingTransport(ErrorClass.RATE_LIMITED, times=0), Pauses()
    wire.failures = [LIMITED] * 2
    await first_completion(context(wire), HI, pause=pauses)
    assert pauses == [30.0, 30.0]
    wire, pauses = FailingTransport(ErrorClass.RATE_LIMITED, times=0), Pauses()
    wire.failures = [LIMITED] * 9
    with pytest.raises(EngineFailed, match=r"\(rate_limited, 3 times\): HTTP 429"):
        await first_completion(context(wire), HI, pause=pauses)
    assert pauses == [30.0, 30.0]


async def test_first_completion_has_the_settings_of_the_other_requests() -> None:
    wire = CannedTransport(WHOLE)
    changed: dict[str, Any] = {"sampling": Sampling(temperature=1, top_p=0.5), "extra_body": {"top_k": 7, "seed": None}}
    await first_completion(context(wire, **changed), HI)
    body = json.loads(wire.requests[0].body)
    assert (body["temperature"], body["top_p"], body["top_k"], "seed" in body) == (1, 0.5, 7, False)
    whole = CannedTransport(replace(WHOLE, error_class=ErrorClass.TIMEOUT, error="late"))
    with pytest.raises(EngineFailed):
        await first_completion(context(whole, output=Output(stream=False, max_tokens=4)), HI)
    body = json.loads(whole.requests[0].body)
    assert (body["stream"], "stream_options" in body, body["max_tokens"]) == (False, False, 4)


def ids(*token_ids: int) -> ChatMessage:
    return ChatMessage("user", "", token_ids=token_ids)


@pytest.mark.parametrize(
    ("message", "first"),
    [
        (ChatMessage("user", "a b"), FIRST_MESSAGE),
        (ChatMessage("user", "a b", token_ids=(1, 2, 3)), FIRST_MESSAGE),
        (ids(1, 2, 3), ids(3, 2, 1)),
        (ids(*range(99)), ids(*range(98, 34, -1))),
    ],
)
def test_first_completion_of_token_ids_has_token_ids(message: ChatMessage, first: ChatMessage) -> None:
    rows = (Prompt("p", None, ((message,),)),)
    assert first_messages(Prompts(rows, "fingerprint")) == [first]


@pytest.mark.parametrize("adaptive", [True, False])
async def test_drafts_that_were_never_verified_are_not_counted(adaptive: bool) -> None:
    config = {"enable_adaptive_verification": adaptive}
    drafter = {"name": "arm", "method": "dspark", "model": "acme/head", "speculativeConfig": config}
    plan = expand(run_of({"spec.engine": {"kind": "vllm"}, "spec.drafters": [drafter]}))
    point, dialect = plan.groups[0].points[0], DIALECTS[EngineKind.VLLM]
    async with ControlClient("http://h:1") as control:
        for arm in plan.arms:
            engine = EngineConnection(plan, arm, "http://h:1", "m", dialect, control, EngineIdentity())
            assert engine.request_config(point, 0, "p").counts_drafts is (arm.is_baseline or not adaptive)
            uncounted = replace(engine, identity=EngineIdentity(counts_drafts=False))
            assert not uncounted.request_config(point, 0, "p").counts_drafts


@pytest.mark.parametrize(
    ("page", "tokens", "words"),
    [
        (response(200, b'vllm:generation_tokens_total{model_name="m"} 5\n'), 5, None),
        (response(200, b"other_total 5\n"), None, "GET /metrics does not have vllm:generation_tokens_total"),
        (response(401, b'{"detail": "no key"}'), None, "no key"),
        (response(404, b""), None, "404"),
    ],
    ids=["found", "other names", "rejected", "absent"],
)
async def test_unread_counters_have_the_reason(page: bytes, tokens: int | None, words: str | None) -> None:
    plan = expand(run_of({"spec.engine": {"kind": "vllm"}, "spec.drafters": MISSING}))
    async with serve_scripts([page]) as (url, _), ControlClient(url) as control:
        dialect = DIALECTS[EngineKind.VLLM]
        engine = EngineConnection(plan, plan.arms[0], url, "m", dialect, control, EngineIdentity())
        counters = await engine.counters()
        assert counters is not None
        assert counters.output_tokens == tokens
        assert (counters.unread is None) if words is None else (words in (counters.unread or ""))
        assert await replace(engine, dialect=Dialect()).counters() is None, "its API has no counters"


async def test_a_slash_at_the_end_of_a_route_may_be_why_a_completion_fails() -> None:
    plan = expand(run_of({"spec.engine": {"kind": "vllm"}, "spec.drafters": MISSING}))
    async with ControlClient(url := "http://h:1/v1/chat/completions/") as control:
        engine = EngineConnection(plan, plan.arms[0], url, "m", DIALECTS[EngineKind.VLLM], control, EngineIdentity())
        assert "slash" in address_hint(engine, ["m"])
        assert not address_hint(replace(engine, endpoint=url.rstrip("/")), ["m"])


@pytest.mark.parametrize(
    ("before", "starts", "found", "readings"),
    [
        (1, [1, 2], 1, 1),
        (1, [2, 1], 1, 2),
        (1, [2, 3, 1, 2], 1, 3),
        (1, [2], 2, COUNTER_READINGS),
        (1, [None, 1], None, 1),
        (None, [1, 2], 1, 1),
    ],
    ids=["same process", "in turn", "three processes", "restarted", "not reported", "not reported before"],
)
async def test_counters_are_compared_with_those_of_the_same_process(
    before: int | None, starts: list[int | None], found: int | None, readings: int
) -> None:
    def page(start: int | None) -> Script:
        line = b"" if start is None else b"process_start_time_seconds %d\n" % start
        return [response(200, b"vllm:generation_tokens_total 5\n" + line)]

    plan = expand(run_of({"spec.engine": {"kind": "vllm"}, "spec.drafters": MISSING}))
    async with serve_scripts(*map(page, starts)) as (url, received), ControlClient(url) as control:
        engine = EngineConnection(plan, plan.arms[0], url, "m", DIALECTS[EngineKind.VLLM], control, EngineIdentity())
        counters = await engine.counters(before)
    assert counters is not None
    assert (counters.started_s, counters.output_tokens, len(received.requests)) == (found, 5, readings)
