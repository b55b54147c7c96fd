"""llama.cpp's own HTTP server, from the prebuilt wheel `xllamacpp`, behind the flags of a real `llama-server`.

    python -m specbench_client.local.llama_server -m MODEL.gguf --port 8080 -np 4 --metrics --spec-type ngram-simple

One command line then starts either program: the user's own binary or image, or this one where there is none. The wheel
has the C++ server but not its argument parser, so that parser's subset that we render lives here, with its defaults
(`common/arg.cpp` of llama.cpp b11434). It is stricter on purpose: what the real one accepts and then does not do (a
drafter without its --spec-type, a knob of a drafter that is off, the first of two values) is an error here, because a
benchmark that believes it reports a speed-up of nothing. Exit codes: 2 the command line, 1 the engine, 0 a signal.
"""

from __future__ import annotations

import difflib
import os
import signal
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click

from specbench_api.errors import SpecbenchError
from specbench_client.extras import remedy

SPEC_TYPES: Final = (
    *("none", "draft-simple", "draft-eagle3", "draft-mtp", "draft-dflash", "draft-dspark"),
    *("ngram-simple", "ngram-map-k", "ngram-map-k4v", "ngram-mod", "ngram-cache"),
)
# draft-mtp is missing: its extra layers usually lie in the target's own file.
NEEDS_DRAFT_MODEL: Final = frozenset({"draft-simple", "draft-eagle3", "draft-dflash", "draft-dspark"})
DRAFT_MODEL: Final = "speculative.draft.mparams.path"
FLASH_ATTENTION: Final = {"on": "ENABLED", "off": "DISABLED", "auto": "AUTO"}  # our words, the library's

Value = str | int | float | bool | list[str]


class BadFlag(SpecbenchError):
    """The command line cannot be served as written; the message names the flag and what to write instead."""


def words(value: str) -> list[str]:
    """Take a comma-separated list with at least one entry."""
    if found := [word.strip() for word in value.split(",") if word.strip()]:
        return found
    raise ValueError("names nothing")


def whole(low: int, high: int = 2**31 - 1) -> Callable[[str], int]:
    """Make a reader of whole numbers from `low` to `high`."""

    def read(value: str) -> int:
        try:
            number = int(value)
        except ValueError:
            raise ValueError("is not a whole number") from None
        if not low <= number <= high:
            raise ValueError(f"is not between {low} and {high}")
        return number

    return read


def threads(value: str) -> int:
    """Take a number of threads; like llama.cpp, zero and less mean all cores."""
    number = whole(-1)(value)
    return number if number > 0 else os.cpu_count() or 1


def each_of(known: Collection[str]) -> Callable[[str], list[str]]:
    """Make a reader of comma-separated lists of known words."""

    def read(value: str) -> list[str]:
        unknown = [word for word in words(value) if word not in known]
        if unknown:
            raise ValueError(f"knows no {unknown[0]}, only {', '.join(known)}")
        return words(value)

    return read


@dataclass(frozen=True)
class Flag:
    """One flag of llama-server: its spellings, the field of `CommonParams` that it sets, and how its value is read.

    A flag without a value has no reader: it sets True, or False where it is spelt `--no-…`.
    """

    names: tuple[str, ...]
    field: str
    read: Callable[[str], Value] | None
    help: str


def lookup(kind: str) -> tuple[Flag, ...]:
    """Make the knobs of one of the drafters that look n-grams up."""
    names, fields = f"--spec-{kind}", f"speculative.{kind.replace('-', '_')}"
    return (
        Flag((f"{names}-size-n",), f"{fields}.size_n", whole(1, 1024), "tokens looked up (12)"),
        Flag((f"{names}-size-m",), f"{fields}.size_m", whole(1, 1024), "tokens drafted (48)"),
        Flag((f"{names}-min-hits",), f"{fields}.min_hits", whole(1), "hits needed (1)"),
    )


FLAGS: Final = (
    Flag(("-m", "--model"), "model.path", str, "GGUF file of the target"),
    Flag(("-a", "--alias"), "model_alias", words, "model names in the API"),
    Flag(("--host",), "hostnames", words, "addresses to listen on (127.0.0.1)"),
    Flag(("--port",), "port", whole(0, 65535), "port to listen on (8080; 0: any free one, told in the log)"),
    Flag(("-c", "--ctx-size"), "n_ctx", whole(0), "tokens of context, divided among the slots (0: the model's)"),
    Flag(("-np", "--parallel"), "n_parallel", whole(-1), "slots (-1: four over one shared cache)"),
    Flag(("-t", "--threads"), "cpuparams.n_threads", threads, "threads that decode"),
    Flag(("-tb", "--threads-batch"), "cpuparams_batch.n_threads", threads, "threads that read prompts (as --threads)"),
    Flag(("--threads-http",), "n_threads_http", whole(-1), "threads that answer HTTP"),
    Flag(("-b", "--batch-size"), "n_batch", whole(1), "logical batch (2048)"),
    Flag(("-ub", "--ubatch-size"), "n_ubatch", whole(1), "physical batch (512)"),
    Flag(("-fa", "--flash-attn"), "flash_attn_type", each_of(FLASH_ATTENTION), "on, off or auto"),
    Flag(("-s", "--seed"), "sampling.seed", whole(-1, 2**32 - 1), "seed for requests without one (-1: random)"),
    Flag(("--metrics",), "endpoint_metrics", None, "serve /metrics"),
    Flag(("--slots", "--no-slots"), "endpoint_slots", None, "serve /slots (yes)"),
    Flag(("--ui", "--webui", "--no-ui", "--no-webui"), "ui", None, "serve the web page (yes)"),
    Flag(("--cache-prompt", "--no-cache-prompt"), "cache_prompt", None, "reuse a slot's prompt prefix (yes)"),
    Flag(("-cram", "--cache-ram"), "cache_ram_mib", whole(-1), "MiB of prompt cache beside the slots (8192)"),
    Flag(("--spec-type",), "speculative.types", each_of(SPEC_TYPES), "how to draft: " + ", ".join(SPEC_TYPES)),
    Flag(("-md", "--model-draft", "--spec-draft-model"), "speculative.draft.mparams.path", str, "drafter's GGUF file"),
    Flag(("--spec-draft-n-max",), "speculative.draft.n_max", whole(0), "most tokens a draft (3)"),
    Flag(("--spec-draft-n-min",), "speculative.draft.n_min", whole(0), "fewest tokens a draft (0)"),
    Flag(("--spec-synth-len",), "speculative.synth_len", float, "accept at random to this mean length: no valid text"),
    *lookup("ngram-simple"),
    *lookup("ngram-map-k"),
    *lookup("ngram-map-k4v"),
    Flag(("--spec-ngram-mod-n-match",), "speculative.ngram_mod.n_match", whole(1, 1024), "tokens looked up (24)"),
    Flag(("--spec-ngram-mod-n-min",), "speculative.ngram_mod.n_min", whole(0, 1024), "fewest tokens drafted (48)"),
    Flag(("--spec-ngram-mod-n-max",), "speculative.ngram_mod.n_max", whole(0, 1024), "most tokens drafted (64)"),
)
BY_NAME: Final = {name: flag for flag in FLAGS for name in flag.names}

# Removed from llama-server, where they are errors too; each with what took its place.
REMOVED: Final = {
    **dict.fromkeys(("--draft", "--draft-max"), "--spec-draft-n-max"),
    "--draft-min": "--spec-draft-n-min",
}


def parse(argv: Sequence[str]) -> dict[str, Value]:
    """Read a llama-server command line into values by `CommonParams` field; raise BadFlag for what cannot be served."""
    values: dict[str, Value] = {}
    left = list(argv)
    while left:
        name, joined, value = left.pop(0).partition("=")
        flag = known(name)
        if flag.field in values:
            raise BadFlag(f"{name} is given twice; llama-server would use the last one only")
        if flag.read is None:
            if joined:
                raise BadFlag(f"{name} takes no value")
            values[flag.field] = not name.startswith("--no")
            continue
        if not joined and not left:
            raise BadFlag(f"{name} needs a value: {flag.help}")
        if not joined:
            value = left.pop(0)
        try:
            values[flag.field] = flag.read(value)
        except ValueError as error:
            raise BadFlag(f"{name} {value}: {error}") from error
    return values


def known(name: str) -> Flag:
    """Find the flag by any of its spellings; like llama.cpp, `_` is as good as `-` in a long one."""
    spelling = name.replace("_", "-") if name.startswith("--") else name
    if spelling in BY_NAME:
        return BY_NAME[spelling]
    nearest = REMOVED.get(spelling) or difflib.get_close_matches(spelling, BY_NAME, n=1, cutoff=0.0)[0]
    raise BadFlag(f"unknown flag {name}; the nearest known one is {nearest} (--help lists all)")


def refuse_silent_no_ops(values: Mapping[str, Value], environment: Mapping[str, str]) -> None:
    """Refuse what llama-server accepts and then never does: it would pass for a drafter that was measured."""
    inherited = sorted(name for name in environment if name.startswith("LLAMA_ARG_"))
    if inherited:
        raise BadFlag(f"{', '.join(inherited)}: llama-server reads this from its environment, this server only flags")
    asked = values.get("speculative.types")
    types: set[str] = set(asked) - {"none"} if isinstance(asked, list) else set()
    if types and isinstance(asked, list) and "none" in asked:
        raise BadFlag("--spec-type none cannot be combined with another type")
    lacking = sorted(types & NEEDS_DRAFT_MODEL)
    if lacking and DRAFT_MODEL not in values:
        raise BadFlag(f"--spec-type {lacking[0]} without -md FILE: the server would start and never draft")
    size_n, size_m = (values.get(f"speculative.ngram_simple.{size}") for size in ("size_n", "size_m"))
    if "ngram-simple" in types and int(str(size_m or 48)) < int(str(size_n or 12)):
        # llama.cpp's common_ngram_simple_draft drops drafts that are shorter than what was looked up.
        raise BadFlag(f"ngram-simple never drafts where size-m ({size_m or 48}) is below size-n ({size_n or 12})")
    kinds = types | {"draft" for name in types if name.startswith("draft-")} | {"synth-len" for _ in types}
    for field in values:
        room, *knob = field.split(".")
        if room != "speculative" or knob == ["types"] or knob[0].replace("_", "-") in kinds:
            continue
        name = next(flag.names[0] for flag in FLAGS if flag.field == field)
        kind = {"draft": "draft-simple", "synth_len": "TYPE"}.get(knob[0], knob[0].replace("_", "-"))
        raise BadFlag(f"{name} without --spec-type {kind} (or its like): accepted by llama-server, then never used")


def refuse_missing_files(values: Mapping[str, Value]) -> None:
    """Refuse a model file that is missing before anything is started."""
    if "model.path" not in values:
        raise BadFlag("-m FILE is needed: the model to serve")
    for field, flag in (("model.path", "-m"), (DRAFT_MODEL, "-md")):
        if field in values and not Path(str(values[field])).is_file():
            raise BadFlag(f"{flag} {values[field]}: no such file")


def configure(params: Any, values: Mapping[str, Value], library: Any) -> None:
    """Set llama-server's defaults, where the bare library has others, and then what the command line says."""
    params.port = 8080
    for field, value in values.items():
        *path, name = field.split(".")
        owner = params
        for part in path:
            owner = getattr(owner, part)
        setattr(owner, name, native(field, value, library))
    if values.get("n_parallel", -1) == -1:
        params.n_parallel, params.kv_unified = 4, True
    if values.get("n_ctx") == 0:
        params.fit_params_min_ctx = -1  # llama.cpp compares it with UINT32_MAX: "all that the model was trained on"


def native(field: str, value: Value, library: Any) -> Any:
    """Turn a value into the type that the library wants for that field."""
    if field == "model_alias" and isinstance(value, list):
        return set(value)
    if field == "flash_attn_type" and isinstance(value, list):
        return getattr(library.llama_flash_attn_type, f"LLAMA_FLASH_ATTN_TYPE_{FLASH_ATTENTION[value[-1]]}")
    if field == "speculative.types" and isinstance(value, list):
        kinds = library.common_speculative_type
        names = ["none", *(name for name in value if name != "none")]
        return [getattr(kinds, f"COMMON_SPECULATIVE_TYPE_{name.upper().replace('-', '_')}") for name in names]
    return value % 2**32 if field == "sampling.seed" and isinstance(value, int) else value


def serve(values: Mapping[str, Value], library: Any) -> int:
    """Start the server and stay until a signal; returns only when it could not start."""
    params = library.CommonParams()
    configure(params, values, library)
    if os.getpid() == 1:
        # The kernel drops signals to process 1 that have no handler. This one runs once the model is loaded, for
        # the library holds the interpreter till then. Any other process is ended at once by the default action.
        listen_to_signals()
    try:
        server = library.Server(params)
    except RuntimeError as error:
        click.echo(f"llama_server: it did not start (the lines above say why): {error}", err=True)
        return 1
    listen_to_signals()
    click.echo(f"llama_server: ready on {server.listening_address}", err=True)
    while True:
        signal.pause()


def listen_to_signals() -> None:
    """Let SIGTERM and SIGINT end this process at once and in peace, as llama-server does; open streams are cut off."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: os._exit(0))


def load() -> Any:
    """Import the wheel, or say how to get it."""
    try:
        import xllamacpp  # noqa: PLC0415  -- an extra: parsing, --help and all other code do without it
    except ImportError as error:
        raise BadFlag(f"llama.cpp's server is an extra: {remedy('llama-cpp')}") from error
    return xllamacpp


def main(argv: Sequence[str]) -> int:
    """Serve, or say in one line why not."""
    try:
        if {"-h", "--help", "--usage"} & set(argv):
            rows = (f"  {', '.join(flag.names):<44} {flag.help}" for flag in FLAGS)
            click.echo("\n".join((__doc__, *rows)))
            return 0
        if "--version" in argv:
            library = load()
            click.echo(f"xllamacpp {library.__version__} (llama.cpp {library.BUILD_INFO})")
            return 0
        values = parse(argv)
        refuse_silent_no_ops(values, os.environ)
        refuse_missing_files(values)
        library = load()
    except BadFlag as error:
        click.echo(f"llama_server: {error}", err=True)
        return 2
    return serve(values, library)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
