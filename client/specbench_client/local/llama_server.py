"""llama.cpp's own HTTP server, from the prebuilt wheel `xllamacpp`, behind the flags of a real `llama-server`.

    specbench llama-server -m MODEL.gguf --port 8080 -np 4 --metrics --spec-type ngram-simple

The same command line starts either program: the user's own binary or image, or this server if there is none. The wheel
contains the C++ server but not its argument parser, so the subset of flags that specbench renders is parsed here, with
the same defaults (`common/arg.cpp` of llama.cpp b11434). It is stricter on purpose: flags that llama-server accepts but
ignores (a drafter without its --spec-type, an option of a drafter that is off) are errors here, because a benchmark
would report the speed-up of a drafter that never ran. Exit codes: 2 bad command line or model, 0 a signal.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NoReturn

import click

from specbench_client.optional_dependencies import install_hint

SPEC_TYPES: Final = (
    *("none", "draft-simple", "draft-eagle3", "draft-mtp", "draft-dflash", "draft-dspark"),
    *("ngram-simple", "ngram-map-k", "ngram-map-k4v", "ngram-mod", "ngram-cache"),
)
# draft-mtp is not included: its extra layers are usually in the target's own file.
NEEDS_DRAFT_MODEL: Final = frozenset({"draft-simple", "draft-eagle3", "draft-dflash", "draft-dspark"})
PROBABILISTIC: Final = "probabilistic"
DRAFT_MODEL: Final = "speculative.draft.mparams.path"
FLASH_ATTENTION: Final = {"on": "ENABLED", "off": "DISABLED", "auto": "AUTO"}  # value of the flag → name in the library

FlagValue = str | int | float | bool | list[str]


class BadFlag(click.UsageError):
    """The command line cannot be served as written; the message names the flag and what to write instead."""


def split_words(value: str) -> list[str]:
    """Parse a comma-separated list with at least one entry."""
    if words := [word.strip() for word in value.split(",") if word.strip()]:
        return words
    raise click.BadParameter("the list is empty")


def whole_number(low: int, high: int = 2**31 - 1) -> click.IntRange:
    """Return the type of integers from `low` to `high`, which fit into a C int by default."""
    return click.IntRange(low, high)


def thread_count(value: str) -> int:
    """Parse a number of threads; like in llama.cpp, 0 and negative numbers mean all cores."""
    number = int(whole_number(-1)(value))
    return number if number > 0 else os.cpu_count() or 1


def spec_types(value: str) -> list[str]:
    """Parse a comma-separated list of drafting types."""
    return [str(click.Choice(SPEC_TYPES)(word)) for word in split_words(value)]


class ServerFlag(click.Option):
    """One flag of llama-server: its spellings, the field of `CommonParams` that it sets, and how its value is read.

    A flag without a value has no `read`: it sets True, or False in its spelling `--no-…`.
    """

    def __init__(self, names: tuple[str, ...], field: str, read: Callable[[str], FlagValue] | None, what: str) -> None:
        kind: dict[str, Any] = {"is_flag": True} if read is None else {"type": read, "metavar": "VALUE"}
        super().__init__([*names, field.replace(".", "__")], help=what, default=None, **kind)
        self.field = field


def ngram_lookup_flags(kind: str) -> tuple[ServerFlag, ...]:
    """Return the flags of a drafter that looks up n-grams."""
    names, fields = f"--spec-{kind}", f"speculative.{kind.replace('-', '_')}"
    return (
        ServerFlag((f"{names}-size-n",), f"{fields}.size_n", whole_number(1, 1024), "tokens looked up (12)"),
        ServerFlag((f"{names}-size-m",), f"{fields}.size_m", whole_number(1, 1024), "tokens drafted (48)"),
        ServerFlag((f"{names}-min-hits",), f"{fields}.min_hits", whole_number(1), "hits needed (1)"),
    )


FLAGS: Final = (
    ServerFlag(("-m", "--model"), "model.path", str, "GGUF file of the target"),
    ServerFlag(("-a", "--alias"), "model_alias", split_words, "model names in the API"),
    ServerFlag(("--host",), "hostnames", split_words, "addresses to listen on (127.0.0.1)"),
    ServerFlag(("--port",), "port", whole_number(0, 65535), "port to listen on (8080; 0: any free one, see the log)"),
    ServerFlag(
        ("-c", "--ctx-size"), "n_ctx", whole_number(0), "tokens of context, divided among the slots (0: the model's)"
    ),
    ServerFlag(("-np", "--parallel"), "n_parallel", whole_number(-1), "slots (-1: four over one shared cache)"),
    ServerFlag(
        ("-t", "--threads"),
        "cpuparams.n_threads",
        thread_count,
        "threads that decode; they spin: give fewer than idle cores (one a core)",
    ),
    ServerFlag(
        ("-tb", "--threads-batch"),
        "cpuparams_batch.n_threads",
        thread_count,
        "threads that read prompts (as --threads)",
    ),
    ServerFlag(("--threads-http",), "n_threads_http", whole_number(-1), "threads that answer HTTP"),
    ServerFlag(("-b", "--batch-size"), "n_batch", whole_number(1), "logical batch (2048)"),
    ServerFlag(("-ub", "--ubatch-size"), "n_ubatch", whole_number(1), "physical batch (512)"),
    ServerFlag(("-fa", "--flash-attn"), "flash_attn_type", click.Choice(tuple(FLASH_ATTENTION)), "on, off or auto"),
    ServerFlag(
        ("-s", "--seed"), "sampling.seed", whole_number(-1, 2**32 - 1), "seed for requests without one (-1: random)"
    ),
    ServerFlag(("--metrics",), "endpoint_metrics", None, "serve /metrics"),
    ServerFlag(("--slots/--no-slots",), "endpoint_slots", None, "serve /slots (yes)"),
    ServerFlag(("--ui/--no-ui", "--webui/--no-webui"), "ui", None, "serve the web page (yes)"),
    ServerFlag(("--cache-prompt/--no-cache-prompt",), "cache_prompt", None, "reuse a slot's prompt prefix (yes)"),
    ServerFlag(
        ("-cram", "--cache-ram"), "cache_ram_mib", whole_number(-1), "MiB of prompt cache beside the slots (8192)"
    ),
    ServerFlag(("--spec-type",), "speculative.types", spec_types, "how to draft: " + ", ".join(SPEC_TYPES)),
    ServerFlag(
        ("-md", "--model-draft", "--spec-draft-model"), "speculative.draft.mparams.path", str, "drafter's GGUF file"
    ),
    ServerFlag(("--spec-draft-n-max",), "speculative.draft.n_max", whole_number(0), "most tokens a draft (3)"),
    ServerFlag(("--spec-draft-n-min",), "speculative.draft.n_min", whole_number(0), "fewest tokens a draft (0)"),
    ServerFlag(
        ("--spec-draft-p-min",), "speculative.draft.p_min", float, "end a draft before a less probable token (0)"
    ),
    ServerFlag(
        ("--spec-draft-sampling",),
        "speculative.draft.probabilistic",
        click.Choice(("greedy", PROBABILISTIC)),
        "greedy, or probabilistic: draw drafts and verify them by rejection sampling (greedy)",
    ),
    ServerFlag(
        ("--spec-synth-len",), "speculative.synth_len", float, "accept at random to this mean length: no valid text"
    ),
    *ngram_lookup_flags("ngram-simple"),
    *ngram_lookup_flags("ngram-map-k"),
    *ngram_lookup_flags("ngram-map-k4v"),
    ServerFlag(
        ("--spec-ngram-mod-n-match",), "speculative.ngram_mod.n_match", whole_number(1, 1024), "tokens looked up (24)"
    ),
    ServerFlag(
        ("--spec-ngram-mod-n-min",), "speculative.ngram_mod.n_min", whole_number(0, 1024), "fewest tokens drafted (48)"
    ),
    ServerFlag(
        ("--spec-ngram-mod-n-max",), "speculative.ngram_mod.n_max", whole_number(0, 1024), "most tokens drafted (64)"
    ),
)


def given_values(options: Mapping[str, Any]) -> dict[str, FlagValue]:
    """Return the values of the given flags by field of `CommonParams`."""
    return {flag.field: options[str(flag.name)] for flag in FLAGS if options[str(flag.name)] is not None}


def reject_ineffective_flags(values: Mapping[str, FlagValue], environment: Mapping[str, str]) -> None:
    """Raise BadFlag for flags that llama-server accepts and then ignores, since a drafter would never run."""
    inherited = sorted(name for name in environment if name.startswith("LLAMA_ARG_"))
    if inherited:
        raise BadFlag(f"{', '.join(inherited)}: llama-server reads this from its environment, this server only flags")
    given = values.get("speculative.types")
    types: set[str] = set(given) - {"none"} if isinstance(given, list) else set()
    if types and isinstance(given, list) and "none" in given:
        raise BadFlag("--spec-type none cannot be combined with another type")
    lacking = sorted(types & NEEDS_DRAFT_MODEL)
    if lacking and DRAFT_MODEL not in values:
        raise BadFlag(f"--spec-type {lacking[0]} without -md FILE: the server would start and never draft")
    size_n, size_m = (values.get(f"speculative.ngram_simple.{size}") for size in ("size_n", "size_m"))
    if "ngram-simple" in types and int(str(size_m or 48)) < int(str(size_n or 12)):
        # llama.cpp's common_ngram_simple_draft drops drafts that are shorter than the looked-up n-gram.
        raise BadFlag(f"ngram-simple never drafts if size-m ({size_m or 48}) is below size-n ({size_n or 12})")
    kinds = types | {"draft" for name in types if name.startswith("draft-")} | {"synth-len" for _ in types}
    for field in values:
        section, *option = field.split(".")
        if section != "speculative" or option == ["types"] or option[0].replace("_", "-") in kinds:
            continue
        name = next(flag.opts[0] for flag in FLAGS if flag.field == field)
        kind = {"draft": "draft-simple", "synth_len": "TYPE"}.get(option[0], option[0].replace("_", "-"))
        raise BadFlag(f"{name} needs --spec-type {kind}: llama-server would accept and ignore it")


def reject_missing_files(values: Mapping[str, FlagValue]) -> None:
    """Raise BadFlag if a model file is missing, before anything is started."""
    if "model.path" not in values:
        raise BadFlag("-m FILE is missing: give the model to serve")
    for field, flag in (("model.path", "-m"), (DRAFT_MODEL, "-md")):
        if field in values and not Path(str(values[field])).is_file():
            raise BadFlag(f"{flag} {values[field]}: no such file")


def configure(params: Any, values: Mapping[str, FlagValue], library: Any) -> None:
    """Set llama-server's defaults, if those of the library differ, and then the values of the command line."""
    params.port = 8080
    for field, value in values.items():
        *path, name = field.split(".")
        owner = params
        for part in path:
            owner = getattr(owner, part)
        setattr(owner, name, native_value(field, value, library))
    if values.get("n_parallel", -1) == -1:
        params.n_parallel, params.kv_unified = 4, True
    if values.get("n_ctx") == 0:
        params.fit_params_min_ctx = (
            -1
        )  # llama.cpp compares it with UINT32_MAX, which means the model's training context.


def native_value(field: str, value: FlagValue, library: Any) -> Any:
    """Convert a value to the type of the library's field."""
    if field == "model_alias" and isinstance(value, list):
        return set(value)
    if field == "flash_attn_type":
        return getattr(library.llama_flash_attn_type, f"LLAMA_FLASH_ATTN_TYPE_{FLASH_ATTENTION[str(value)]}")
    if field == "speculative.draft.probabilistic":
        return value == PROBABILISTIC
    if field == "speculative.types" and isinstance(value, list):
        kinds = library.common_speculative_type
        names = ["none", *(name for name in value if name != "none")]
        return [getattr(kinds, f"COMMON_SPECULATIVE_TYPE_{name.upper().replace('-', '_')}") for name in names]
    return value % 2**32 if field == "sampling.seed" and isinstance(value, int) else value


def serve(values: Mapping[str, FlagValue], library: Any) -> NoReturn:
    """Start the server and run until a signal. Raises BadFlag if it could not start."""
    params = library.CommonParams()
    configure(params, values, library)
    # /props reports the build b0-unknown, since the wheel was built without Git history. The tag identifies the build.
    params.model_tags = {f"xllamacpp-{library.__version__}"}
    if os.getpid() == 1:
        # The kernel drops signals to process 1 that have no handler. The handler runs after the model is loaded: the
        # library blocks the interpreter until then. Other processes are ended at once by the default action.
        listen_to_signals()
    try:
        server = library.Server(params)
    except RuntimeError as error:
        raise BadFlag(
            f"the server did not start ({error}): the lines above have the cause, such as a --port in use, a --host of"
            " another machine, or a damaged GGUF file"
        ) from error
    listen_to_signals()
    click.echo(f"llama_server: ready on {server.listening_address}", err=True)
    while True:
        signal.pause()


def listen_to_signals() -> None:
    """Let SIGTERM and SIGINT end this process at once with exit code 0, like llama-server; open streams are closed."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: os._exit(0))


def load_library() -> Any:
    """Import the wheel. Raises BadFlag with the way to install it."""
    try:
        import xllamacpp  # noqa: PLC0415  -- an extra that parsing and --help do not need
    except ImportError as error:
        raise BadFlag(f"llama.cpp's server is an extra: {install_hint('llama-cpp')}") from error
    return xllamacpp


@click.command(
    name="llama-server",
    params=list(FLAGS),
    context_settings={"token_normalize_func": lambda name: name.replace("_", "-")},  # as in llama.cpp
)
def llama_server(**options: Any) -> None:
    """Serve a model with llama.cpp: its own HTTP server from a prebuilt wheel, with the flags of llama-server.

    \b
      specbench llama-server -m MODEL.gguf --port 8001 -np 1 --metrics
      specbench llama-server -m MODEL.gguf --port 8002 -np 1 --metrics --spec-type ngram-simple \\
        --spec-ngram-simple-size-n 3 --spec-ngram-simple-size-m 3

    Flags that would have no effect are refused, such as a drafter's without its --spec-type. Needs the extra llama-cpp;
    `specbench demo` makes a model.
    """  # noqa: D301  click reads the backspace as "do not wrap"
    values = given_values(options)
    reject_ineffective_flags(values, os.environ)
    reject_missing_files(values)
    serve(values, load_library())


if __name__ == "__main__":
    llama_server()
