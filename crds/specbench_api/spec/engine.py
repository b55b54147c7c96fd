"""`spec.engine`: the inference engine that serves the target."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, ClassVar
from urllib.parse import SplitResult, urlsplit

from pydantic import Field, field_validator

from specbench_api.api_model import ApiModel, KeyedBy, Names, PreserveUnknown, RuledModel, ValidationRule
from specbench_api.spec.patterns import DNS_LABEL
from specbench_api.spec.secret_refs import ApiKeySecretRef

# Validation of an external endpoint's address, for the spec and for the command line. The API server checks the
# pattern; `flaw_of` is equally strict and names each fault. No message repeats the value, which may contain a password.

ADDRESS = r"^https?://[^/\s?#@]+(/[^\s?#]*)?(\?api-version=[A-Za-z0-9._-]+)?$"
"""Pattern of an endpoint. User, password and most queries are excluded: they would be stored with the results."""
CHAT_ROUTE = "/chat/completions"
SCHEMES = ("http", "https")
_EXAMPLE = "http://127.0.0.1:8000"


@dataclass(frozen=True)
class Flaw:
    """What is wrong with an address, and what to write instead."""

    problem: str
    remedy: str = f"write one such as {_EXAMPLE}"

    def __str__(self) -> str:
        return f"{self.problem}: {self.remedy}"


SECRET = Flaw("contains a user name or password, which would be stored with the results", "remove it")
"""The flaw whose remedy depends on where the address was given."""


IMPORTED = "http://imported.invalid"
"""The endpoint of a run that another benchmark measured: its files do not state theirs reliably."""


def flaw_of(address: str) -> Flaw | None:
    """Return the first flaw of an address, or None if it is valid."""
    return next(_flaws(address), None)


def _flaws(address: str) -> Iterator[Flaw]:
    """Yield the flaws, most basic first: later checks assume that earlier ones passed."""
    if "://" not in address:
        yield Flaw("does not begin with http:// or https://", f"write a full URL, such as {_EXAMPLE}")
    try:
        url = urlsplit(address)
    except ValueError:  # for example an unclosed bracket
        yield Flaw("is not a URL")
        return
    if url.scheme not in SCHEMES:
        yield Flaw(f"begins with {url.scheme}:// instead of http:// or https://")
    if re.match(r"[0-9A-Fa-f:]*(::|(:[0-9A-Fa-f]+){7})", url.netloc.rpartition("@")[2]):
        yield Flaw("has an IPv6 address without brackets", "write it as in http://[fd00::1]:8000")
    if not url.hostname or re.search(r"\s", address):
        yield Flaw("has no host", f"add one, such as {_EXAMPLE}")
    if not _has_port(url) or re.search(r"\][^:]", url.netloc):
        yield Flaw("has an invalid port", f"write the engine's, a whole number from 1 to 65535, such as {_EXAMPLE}")
    if "@" in url.netloc:
        yield SECRET
    if re.search(r"\?(?!api-version=[A-Za-z0-9._-]+$)|#", address):
        yield Flaw(
            "has a query or fragment (? or #) after its path",
            "write only the part before it: give a key as a header; only ?api-version=… may follow a path",
        )
    if not re.search(ADDRESS, address):  # for example a scheme in capitals
        yield Flaw("does not have the form http://HOST:PORT/PATH or https://HOST:PORT/PATH")


def route_url(address: str, path: str) -> str:
    """Return the URL of a route, such as /v1/models or /metrics, of an endpoint.

    An address that ends with /chat/completions is of a server whose routes have no /v1, unless it has it. If it ends
    with /chat/completions/, so do the routes of completions. The query follows every route.
    """
    base, mark, query = address.partition("?")
    slash = "/" if base.endswith(f"{CHAT_ROUTE}/") and path.endswith("/completions") else ""
    base = base.rstrip("/").removesuffix(f"/v1{CHAT_ROUTE}")
    if base.endswith(CHAT_ROUTE):
        base, path = base.removesuffix(CHAT_ROUTE), path.removeprefix("/v1")
    return f"{base}{path}{slash}{mark}{query}"


def _has_port(url: SplitResult) -> bool:
    """Return whether the URL's port is valid or absent."""
    try:
        return url.port is None or url.port > 0
    except ValueError:  # not a number, or too large
        return False


class EngineKind(Names):
    """The supported engines. New kinds are added as new values; existing ones are never renamed."""

    SIMULATOR = "simulator"
    VLLM = "vllm"
    SGLANG = "sglang"
    TENSORRT_LLM = "tensorrt-llm"
    LLAMA_CPP = "llama-cpp"
    TRANSFORMERS = "transformers"
    EXTERNAL = "external"


RESEARCH_RUNTIME = "research runtime"
"""Part of the version string that our runtime around transformers reports, by which it is recognised."""


class DialectName(Names):
    """API that an engine serves: plain OpenAI, or OpenAI with the extensions of a known engine."""

    OPENAI = "openai"
    VLLM = "vllm"
    SGLANG = "sglang"
    TENSORRT_LLM = "tensorrt-llm"
    LLAMA_CPP = "llama-cpp"


SIMULATED_DIALECTS = (DialectName.VLLM, DialectName.SGLANG, DialectName.TENSORRT_LLM)
"""The dialects that the simulator can imitate."""


class PromptCache(StrEnum):
    """Whether engines may reuse the KV cache of earlier prompts."""

    DISABLED = "Disabled"
    AS_SERVED = "AsServed"


class EqualizeArms(StrEnum):
    """Whether engine settings that would otherwise differ between arms are set to the same value on every arm."""

    ENABLED = "Enabled"
    DISABLED = "Disabled"


VariableName = Annotated[str, Field(min_length=1, max_length=128, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]


class EnvVar(ApiModel):
    """One environment variable of the engine's container or process."""

    name: VariableName
    """Name of the variable: `VLLM_LOGGING_LEVEL`."""
    value: Annotated[str, Field(max_length=4096)] = ""
    """Its value, verbatim. Do not put secrets here: specs are printed and stored."""


Argument = Annotated[str, Field(min_length=1, max_length=1024)]
Image = Annotated[str, Field(min_length=1, max_length=512, pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/@+-]*$")]


EndpointName = Annotated[str, Field(min_length=1, max_length=32, pattern=r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$")]


class ServiceRef(ApiModel):
    """A Service in the run's namespace."""

    name: Annotated[str, Field(max_length=63, pattern=DNS_LABEL)]
    """Name of the Service."""
    port: Annotated[int, Field(ge=1, le=65_535)]
    """Port of the Service, which serves HTTP."""


class Endpoint(RuledModel):
    """A server that is already running: one arm of a run of kind external."""

    rules: ClassVar = (
        ValidationRule(
            "has(self.url) != has(self.serviceRef)",
            "an endpoint needs either url or serviceRef: give one of them",
            lambda endpoint: (endpoint.url is None) != (endpoint.service_ref is None),
        ),
    )

    name: EndpointName
    """Name of the arm in tables and status. The endpoint named none is the baseline of the others."""
    url: Annotated[str, Field(max_length=512, pattern=ADDRESS)] | None = None
    """URL of the server, without /v1: `http://engine:8000`."""
    service_ref: ServiceRef | None = None
    """Service of the server instead of its URL, which is then `http://NAME.NAMESPACE.svc:PORT`."""
    dialect: DialectName | None = None
    """API dialect. Without it: engine.dialect."""
    model: Annotated[str, Field(min_length=1, max_length=1024)] | None = None
    """Name of the model in requests, if this server uses another one than model.name."""

    @field_validator("url", mode="before")
    @classmethod
    def _address(cls, given: Any) -> Any:
        """Report an invalid address in words instead of the pattern. The value may contain a password."""
        flaw = flaw_of(given) if isinstance(given, str) else None
        if flaw is not None:
            raise ValueError(str(flaw))
        return given

    def in_namespace(self, namespace: str) -> Endpoint:
        """Return the endpoint with the URL of its Service in this namespace."""
        ref = self.service_ref
        if ref is None:
            return self
        url = f"http://{ref.name}.{namespace}.svc:{ref.port}"
        return self.model_copy(update={"url": url, "service_ref": None})

    @property
    def address(self) -> str:
        """The URL of an endpoint of a plan, in which Services are URLs."""
        return self.url or ""


class Engine(RuledModel):
    """One inference engine. Every arm uses the same configuration except for its drafter."""

    rules: ClassVar = (
        ValidationRule(
            "self.kind == 'external' || !has(self.endpoints)",
            "engine.endpoints is only valid with engine.kind external: remove it, or set kind: external",
            lambda engine: engine.is_external or engine.endpoints is None,
        ),
        ValidationRule(
            "self.kind in ['external', 'simulator'] || !has(self.dialect)",
            "engine.dialect is only valid with engine.kind external or simulator: remove it, other engines have their"
            " own",
            lambda engine: engine.kind in (EngineKind.EXTERNAL, EngineKind.SIMULATOR) or engine.dialect is None,
        ),
        ValidationRule(
            "self.kind != 'external' || has(self.endpoints)",
            "engine.kind external needs engine.endpoints: give the name and URL of each server",
            lambda engine: not engine.is_external or engine.endpoints is not None,
        ),
        ValidationRule(
            "self.kind == 'external' || !has(self.apiKeySecretRef)",
            "engine.apiKeySecretRef is only valid with engine.kind external: remove it, engines that specbench starts"
            " need no key",
            lambda engine: engine.is_external or engine.api_key_secret_ref is None,
        ),
        ValidationRule(
            "self.kind != 'simulator' || !has(self.dialect) || self.dialect in ['vllm', 'sglang', 'tensorrt-llm']",
            "engine.dialect of the simulator must be vllm, sglang or tensorrt-llm",
            lambda engine: engine.kind is not EngineKind.SIMULATOR or engine.dialect in (None, *SIMULATED_DIALECTS),
        ),
    )

    kind: EngineKind
    """The engine. simulator: built in, with known true values. transformers: a research runtime. external: servers
    that are already running (`specbench measure`)."""
    endpoints: Annotated[list[Endpoint], Field(min_length=1, max_length=16), KeyedBy("name")] | None = None
    """Kind external: the servers, one per arm."""
    api_key_secret_ref: ApiKeySecretRef | None = None
    """Kind external: Secret with the API key that every endpoint gets as `Authorization: Bearer …`. It is not written
    to plan.json and not part of any point's identity. `specbench run` ignores it and sends OPENAI_API_KEY of the shell.
    """
    dialect: DialectName | None = None
    """API dialect. Kind external: of the endpoints that set none; without it, openai. Kind simulator: the engine to
    imitate; without it, vllm."""
    version: Annotated[str, Field(min_length=1, max_length=64)] | None = None
    """Version of the engine: `0.11.0`. It selects the default image and is part of every point's identity. Without it:
    the version that this release of specbench was tested with."""
    image: Image | None = None
    """Image to run instead of the engine's default image."""
    command: Annotated[list[Argument], Field(max_length=16)] | None = None
    """Program to run instead of the image's entry point; with `specbench run`, instead of the engine's own program."""
    tensor_parallel_size: Annotated[int, Field(ge=1, le=64)] = 1
    """Number of GPUs over which one copy of the target is split."""
    args: Annotated[list[Argument], Field(max_length=64)] = []
    """Additional arguments, passed on every arm: `[--max-model-len, "8192"]`. An argument that contradicts a flag set
    by specbench is an error."""
    config: Annotated[dict[str, Any], Field(max_length=64), PreserveUnknown()] = {}
    """Kind tensorrt-llm: additional keys of its configuration file. A key that contradicts one set by specbench is an
    error."""
    equalize_arms: EqualizeArms = EqualizeArms.ENABLED
    """Enabled: settings that an engine would otherwise choose per arm, apart from the drafter, are set to the same
    value on every arm (docs, "Engines and drafters"). CUDA graphs, continuous batching and chunked prefill are
    never changed. Disabled: the engine's own defaults."""
    env: Annotated[list[EnvVar], Field(max_length=64), KeyedBy("name")] = []
    """Environment variables of the engine, on every arm."""

    @property
    def is_external(self) -> bool:
        """Whether the servers in `endpoints` are already running, so that specbench launches no engine."""
        return self.kind is EngineKind.EXTERNAL

    @property
    def is_imported(self) -> bool:
        """Whether another benchmark measured the run, and `specbench import` stored it."""
        return bool(self.endpoints) and all(each.url == IMPORTED for each in self.endpoints or [])

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables: name → value."""
        return {variable.name: variable.value for variable in self.env}
