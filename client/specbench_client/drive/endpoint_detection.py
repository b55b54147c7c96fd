"""Finds out what runs at an address: its dialect, model, version and drafter, or why it cannot be measured.

Only pages are requested, and no page that changes the engine's state: reading /metrics of TensorRT-LLM clears data.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

from specbench_api.outcome.provenance import FactName
from specbench_api.spec.conditions import EngineReason
from specbench_api.spec.engine import CHAT_ROUTE, DialectName, flaw_of, route_url
from specbench_client.bounded_json import parse_strict_json
from specbench_client.dialects.dialect import Dialect
from specbench_client.dialects.engine_facts import read_facts
from specbench_client.dialects.openai_stream import all_models, model_rows
from specbench_client.dialects.recognition import (
    DEFAULT_PORTS,
    MODELS_PAGE,
    EndpointPages,
    EngineSignature,
    base_models,
    candidates,
    engine_url,
    recognize,
)
from specbench_client.dialects.registry import DIALECTS_BY_NAME
from specbench_client.documents.record import AcceptanceSource
from specbench_client.drive.engine_connection import shown_models
from specbench_client.errors import BadInput, EngineFailed
from specbench_client.known_secrets import key_remedy
from specbench_client.load.turns import TurnResult
from specbench_client.transport.control_client import (
    AccessRejected,
    ControlClient,
    ControlError,
    EngineStarting,
    EngineUnreachable,
    RouteNotFound,
)
from specbench_client.transport.error_messages import (
    ADDRESS_REMEDY,
    REDIRECT_REMEDY,
    engine_error_message,
    is_redirect,
    rejects_key,
    truncate,
)

SIGNATURES: dict[DialectName, EngineSignature] = {
    name: dialect.signature for name, dialect in DIALECTS_BY_NAME.items() if dialect.signature is not None
}
PATIENCE_S = 5.0
"""How long an engine that was just started may take to listen, as for a measurement."""
_TIMEOUT_S = 5.0
_PROBE_TIMEOUT_S = 2.0
_TITLE = re.compile(r"<title[^>]*>\s*([^<]{1,200})", re.IGNORECASE)
_HTML = re.compile(r"\s*<(?:!doctype|html|head|body)", re.IGNORECASE)
_PATH = re.compile(r"[/\\~.]|[A-Za-z]:[/\\]")
"""The beginning of a model's name that is a path."""


@dataclass(frozen=True)
class DetectedEndpoint:
    """What runs at an address. `drafter`: method and draft length, as far as they are reported.

    `model`: None if the user named it; `unlisted`: the models that are listed if it is none of them. `drafting`: None
    if it is not reported. `url`: the address, up to /chat/completions if its routes lack /v1. `most_at_once`: maximum
    number of requests that it processes at once; None if it is not reported.
    """

    dialect: DialectName
    model: str | None
    engine: str
    version: str | None
    drafting: bool | None
    drafter: str | None
    url: str = ""
    unlisted: str = ""
    most_at_once: float | None = None

    def line(self) -> str:
        """Return one line for people: `vLLM 0.33.0, model Qwen/Qwen3-8B, drafter ngram k=4`.

        A model that the server lists by its path is shown as the name of that file or folder.
        """
        drafting = {
            True: f"drafter {self.drafter}" if self.drafter else "speculative decoding on (method not reported)",
            False: "no speculative decoding",
            None: "speculative decoding not reported",
        }[self.drafting]
        model = self.model or ""
        model = re.split(r"[/\\]", model.rstrip("/\\"))[-1] if _PATH.match(model) else model
        named = f"model {model}, " if model else ""
        named = f"lists {self.unlisted} and not this model, " if self.unlisted else named
        return truncate(f"{self.engine} {self.version or '(unknown version)'}, {named}{drafting}")


async def detect_endpoint(
    address: str,
    headers: Mapping[str, str],
    model: str | None = None,
    dialect: DialectName | None = None,
    *,
    patience_s: float = PATIENCE_S,
) -> DetectedEndpoint:
    """Return what runs at an address. `model` and `dialect`: if the user chose them.

    Raises EngineFailed if it cannot be reached or is not an engine, and BadInput if the user must choose.
    """
    url = engine_url(address)
    async with ControlClient(url, _TIMEOUT_S, headers=headers) as control:
        optional = model is not None
        listed, url = await _list_of_models(control, url, headers, patience_s, optional=optional)
        pages = await _read_pages(control, listed, dialect)
        name = _recognized(url, pages, dialect)
        found = DIALECTS_BY_NAME[name]
        metrics = pages.metrics.get(found.metrics_path) or ""
        drafting = found.speculating(pages.documents.get(found.state_path or ""), metrics)
        names = all_models(listed)
        limits = [reading for reading in found.readings if reading.fact is FactName.MAX_RUNNING_REQUESTS]
        return DetectedEndpoint(
            dialect=name,
            model=None if model else _only_model(url, listed),
            engine=_engine_name(found, pages),
            version=found.identity(pages.documents).version,
            drafting=drafting,
            drafter=found.signature.drafter(pages) if found.signature and drafting else None,
            url=url,
            unlisted=shown_models(names) if names and model not in (None, *names) else "",
            most_at_once=next((fact.number for fact in read_facts(limits, pages.documents).values()), None),
        )


async def _list_of_models(
    control: ControlClient,
    url: str,
    headers: Mapping[str, str],
    patience_s: float,
    *,
    optional: bool,
) -> tuple[Any, str]:
    """Return the list of models, and the address with /chat/completions if its routes have no /v1.

    Waits for an engine that is starting or limits its rate. `optional`: the model is known, so the list may be missing
    and is then empty. Raises EngineFailed with the remedy.
    """
    try:
        text = await control.wait_for(MODELS_PAGE, patience_s, _is_permanent)
    except ControlError as error:
        if optional and error.status == HTTPStatus.FORBIDDEN:  # A key may be restricted to completions.
            return {}, url
        if isinstance(error, RouteNotFound):
            listed = (await control.documents(["/models"]))["/models"]
            if model_rows(listed):
                return listed, f"{url}{CHAT_ROUTE}"
            if optional:
                return {}, url
        message = await _describe_failure(error, url, headers)
        raise EngineFailed(message, EngineReason.NEVER_READY) from error
    return _parse_list(text, route_url(url, MODELS_PAGE), optional=optional), url


def _is_permanent(error: ControlError) -> bool:
    return error.retry_after_s is None and not isinstance(error, EngineUnreachable | EngineStarting)


def _parse_list(text: str, page: str, *, optional: bool) -> Any:
    """Return the list of models on a page. Raises EngineFailed with the remedy."""
    try:
        listed = parse_strict_json(text.removeprefix("\ufeff").encode())
    except ValueError as error:
        raise EngineFailed(f"GET {page}: {_not_json(text)}", EngineReason.NEVER_READY) from error
    if model_rows(listed) or (isinstance(listed, dict) and isinstance(listed.get("data"), list)):
        return listed
    if optional:
        return {}
    raise EngineFailed(
        f"GET {page}: the answer is not a list of models in OpenAI's form: name the model with --model, or"
        f" {ADDRESS_REMEDY}",
        EngineReason.NEVER_READY,
    )


def _not_json(text: str) -> str:
    if not _HTML.match(text):
        return f"the answer is not JSON: {truncate(text, 80)}: {ADDRESS_REMEDY}"
    title = _TITLE.search(text)
    named = f" ({truncate(title[1].strip(), 80)})" if title else ""
    return f"the answer is an HTML page{named}, of a proxy, a login or a web interface: {ADDRESS_REMEDY}"


async def _describe_failure(error: ControlError, url: str, headers: Mapping[str, str]) -> str:
    """Return what is wrong at an address, and the remedy."""
    if error.status is None or error.status == HTTPStatus.BAD_REQUEST:  # 400: servers with TLS answer http with it.
        parts = urlsplit(url)
        if await _speaks_other_scheme(url):
            other = "https" if parts.scheme == "http" else "http"
            return f"{parts.netloc} does not accept {parts.scheme}: give {other}://{parts.netloc}{parts.path}"
    if error.status is not None:
        return await _describe_status(error, error.status, url, headers)
    if isinstance(error, EngineUnreachable):
        return f"{error}: start the engine, or correct the host and port of {url}"
    return str(error) if isinstance(error, AccessRejected) else f"{error}: {ADDRESS_REMEDY}"


async def _describe_status(error: ControlError, status: int, url: str, headers: Mapping[str, str]) -> str:
    """Return what an answer with another status than 200 means, and the remedy."""
    body = error.body.decode(errors="replace")
    text = "" if _HTML.match(body) else truncate(engine_error_message(error.body), 200)
    cause = f"GET {route_url(url, MODELS_PAGE)}: HTTP {status}" + (f": {text}" if text else "")
    if rejects_key(status):
        remedy = key_remedy()
    elif is_redirect(status, error.location):
        location = truncate(str(error.location), 200)
        address = re.sub(r"\?(?!api-version=[\w.-]+$).*|#.*", "", location)  # what --endpoint rejects
        other = engine_url(re.sub(r"/models/*(?=\?|$)", CHAT_ROUTE, address))
        advice = (
            REDIRECT_REMEDY if other == engine_url(url) or flaw_of(other) else f"give {other} if that is the engine"
        )
        remedy = f"redirected to {location}: {advice}"
    elif isinstance(error, RouteNotFound):
        remedy = await _address_with_models(url, headers)
    elif isinstance(error, EngineStarting) and text:
        remedy = "wait until the engine has loaded its model"
    else:
        remedy = _not_json(body) if _HTML.match(body) else ADDRESS_REMEDY
    return f"{cause}: {remedy}"


async def _address_with_models(url: str, headers: Mapping[str, str]) -> str:
    """Return the remedy for an address without a list of models: the root of the host if it has one."""
    parts = urlsplit(url)
    root = f"{parts.scheme}://{parts.netloc}"
    if parts.path:
        async with ControlClient(root, _PROBE_TIMEOUT_S, headers=headers) as control:
            models = all_models((await control.documents([MODELS_PAGE]))[MODELS_PAGE])
        if models:
            return f"give {root}, which serves {shown_models(models)}"
    return f"{ADDRESS_REMEDY}, or name the model with --model if the server lists none"


async def _speaks_other_scheme(url: str) -> bool:
    """Return whether the port accepts the other of http and https."""
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or DEFAULT_PORTS[parts.scheme]
    with suppress(OSError, ssl.SSLError, asyncio.IncompleteReadError):
        async with asyncio.timeout(_PROBE_TIMEOUT_S):
            return await (_speaks_tls(host, port) if parts.scheme == "http" else _speaks_http(host, port))
    return False


async def _speaks_tls(host: str, port: int) -> bool:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # Only the protocol matters here.
    _, writer = await asyncio.open_connection(host, port, ssl=context)
    writer.transport.abort()
    return True


async def _speaks_http(host: str, port: int) -> bool:
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(f"GET {MODELS_PAGE} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        return await reader.readexactly(5) == b"HTTP/"
    finally:
        writer.transport.abort()


async def _read_pages(control: ControlClient, listed: Any, dialect: DialectName | None) -> EndpointPages:
    """Request the pages that distinguish the engines which the list of models leaves possible."""
    first = EndpointPages({MODELS_PAGE: listed}, server=control.server)
    names = [dialect] if dialect else list(candidates(first.owners, SIGNATURES))
    dialects = [DIALECTS_BY_NAME[name] for name in names]
    keyed = {path for one in dialects if one.signature for path in one.signature.keys}
    paths = keyed | {path for one in dialects for path in (*one.identity_paths, one.state_path) if path}
    documents = await control.documents(sorted(paths - {MODELS_PAGE}))
    metrics: dict[str, str | None] = {}
    # A page of only one engine comes first: if it identifies TensorRT-LLM, its /metrics is not read.
    for path in sorted({one.metrics_path for one in dialects}, key=len, reverse=True):
        pages = EndpointPages({MODELS_PAGE: listed, **documents}, metrics, first.server)
        if metrics and recognize(pages, SIGNATURES):
            break
        metrics[path] = await control.text_or_none(path)
    return EndpointPages({MODELS_PAGE: listed, **documents}, metrics, first.server)


def _recognized(url: str, pages: EndpointPages, chosen: DialectName | None) -> DialectName:
    """Return the chosen dialect, or that of the engine. Raises BadInput if the evidence is contradictory."""
    if chosen is not None:
        return chosen
    found = recognize(pages, SIGNATURES)
    if len(found) > 1:
        reasons = "; ".join(f"{name} ({', '.join(evidence)})" for name, evidence in found.items())
        raise BadInput(f"{url} looks like several engines: {reasons}: give the right one with --dialect")
    return next(iter(found), DialectName.OPENAI)


def _engine_name(dialect: Dialect, pages: EndpointPages) -> str:
    """Return the engine's name; of another server with its API, the API's name and the owner of its models."""
    owners = ", ".join(sorted(map(str, pages.owners))) or "an unknown server"
    if dialect.signature is None:
        return f"OpenAI API of {owners}"
    is_engine = dialect.signature.owner in pages.owners
    return dialect.signature.engine if is_engine else f"{dialect.signature.engine} API of {owners}"


def _only_model(url: str, listed: Any) -> str:
    """Return the model that is served. Raises BadInput unless there is exactly one."""
    models = base_models(listed)
    if len(models) == 1:
        return models[0]
    if not models:
        raise BadInput(f"{url} lists no model: name it with --model")
    raise BadInput(f"{url} serves {len(models)} models: choose one with --model: {shown_models(models)}")


def unreported_acceptance(name: DialectName | None, result: TurnResult) -> str | None:
    """Return the warning about an engine that drafts, but whose answer does not report acceptance."""
    signature, source = DIALECTS_BY_NAME[name or DialectName.OPENAI].signature, result.record.acceptance_source
    reported = source in (AcceptanceSource.PER_STEP, AcceptanceSource.PER_REQUEST)
    if reported or signature is None or not signature.report_acceptance:
        return None
    what = "the engine drafts, but its answers do not report acceptance, so it is known only if its counters confirm it"
    return f"{what}: {signature.report_acceptance}"
