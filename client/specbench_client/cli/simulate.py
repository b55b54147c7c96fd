"""``specbench simulate``: the simulated engine in the foreground."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TypedDict, Unpack

import click

from specbench_client.simulator import (
    HABITS,
    ConfigError,
    Method,
    Place,
    SimulatorConfig,
    StepCost,
    describe_faults,
    drafter,
    follow,
    parse_acceptance,
    parse_faults,
    run_simulator,
)

DEFAULT_DEPTH = 3
_COST = StepCost()
_FILE = click.Path(dir_okay=False, path_type=Path)


class SimulateOptions(TypedDict):
    """The command's options, as click passes them."""

    follow: str | None
    dialect: str
    host: str
    port: int
    port_file: Path | None
    drafter: str
    num_speculative_tokens: int | None
    match_probability: float | None
    acceptance: str
    prompts: Path | None
    truth: Path | None
    fault: tuple[str, ...]
    seed: int
    output_mean: float
    max_num_seqs: int
    max_model_len: int
    base_ms: float
    per_token_ms: float
    per_kv_ms: float
    per_draft_ms: float | None
    per_prefill_ms: float
    time_scale: float
    served_model_name: tuple[str, ...]
    per_request_spec_decode_metrics: str


HELP = f"""Serve a simulated engine: an engine's HTTP, a known acceptance, known step times, no GPU.

The model is called "simulated", and every answer says that it is simulated.

\b
Examples:
  # a baseline and the same engine with a drafter
  specbench simulate --port 8000
  specbench simulate --port 8001 --drafter eagle3 --num-speculative-tokens 3 \\
    --acceptance default=0.6,coding=0.85/0.8/0.7 --prompts prompts.jsonl --truth truth.jsonl
\b
  # ask it, as any vLLM
  curl -s localhost:8000/v1/chat/completions -H 'Content-Type: application/json' -d \\
    '{{"model": "simulated", "temperature": 0, "messages": [{{"role": "user", "content": "Hello"}}]}}'
\b
  # an engine that lies: its usage counts 3 tokens too many
  specbench simulate --drafter ngram --num-speculative-tokens 4 --fault miscount=3

\b
Dialects (--dialect): whose HTTP it speaks. What each answer tells of its drafts:
  vllm          every step (--per-request-spec-decode-metrics); counters of steps, drafts and accepted drafts
  sglang        totals and a histogram, to who asks (return_spec_tokens_details); a counter of steps. /health
                generates a token, /ready does not; /flush_cache starts the average of /server_info anew
  tensorrt-llm  the average of tokens an iteration; no counter of tokens. Unknown fields are refused;
                /metrics gives its last 1000 iterations out once

\b
A step takes (milliseconds)
  base + per-token x (sum over running requests of drafted + 1) + per-kv x (tokens in the KV cache)
       + per-draft x (draft depth) + per-prefill x (prompt tokens computed)

\b
Truth file: one JSON line a request, appended and flushed. step_accepted, accepted_tokens and output_tokens
are what was delivered: output_tokens = 1 + sum(step_accepted + 1). "reported" is what vLLM and SGLang say:
they count accepted drafts before they cut the last step, and leave out steps without drafts.

\b
Faults (--fault NAME or NAME=VALUE, repeatable; the value shown is the default):
{"".join(f"  {line}" + chr(10) for line in describe_faults().splitlines())}"""


@click.command(name="simulate", help=HELP)
@click.option(
    "--follow",
    metavar="URL",
    help="Be a further node of the simulated engine at URL: wait for it, and live as long as it answers.",
)
@click.option("--dialect", default="vllm", show_default=True, help="Whose HTTP to speak: see above.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", default=8000, show_default=True, type=click.IntRange(0, 65535), help="0 takes a free port.")
@click.option("--port-file", type=_FILE, help="Write the port here once it listens.")
@click.option(
    "--drafter",
    default="none",
    show_default=True,
    type=click.Choice([one.value for one in Method]),
    help="How drafts are proposed.",
)
@click.option(
    "--num-speculative-tokens",
    "-k",
    type=click.IntRange(min=1),
    metavar="K",
    help=f"Drafts a step. [default: {DEFAULT_DEPTH} with a drafter]",
)
@click.option(
    "--match-probability",
    type=click.FloatRange(0, 1),
    help=f"How often a step has drafts at all. [default: ngram {HABITS[Method.NGRAM].match_probability}, "
    f"suffix {HABITS[Method.SUFFIX].match_probability}, others 1]",
)
@click.option(
    "--acceptance",
    default="0.7",
    show_default=True,
    metavar="P",
    help="Probability that a draft is accepted when those before it were: 0.7, by category default=0.7,coding=0.85, "
    "by position 0.8/0.6/0.4 (the last repeats).",
)
@click.option("--prompts", type=_FILE, help="JSONL that gives each prompt's category; others are 'default'.")
@click.option("--truth", type=_FILE, help="Append what really happened, one JSON line a request.")
@click.option("--fault", multiple=True, metavar="NAME[=VALUE]", help="Lie or die; see above. Repeatable.")
@click.option("--seed", default=0, show_default=True, help="Of texts, lengths and acceptance.")
@click.option("--output-mean", default=128.0, show_default=True, help="Mean natural length of an answer, in tokens.")
@click.option("--max-num-seqs", default=256, show_default=True, help="Requests in one step; the rest waits.")
@click.option("--max-model-len", default=32768, show_default=True, help="Prompt and output tokens together.")
@click.option("--base-ms", default=_COST.base_ms, show_default=True, help="Step cost: fixed.")
@click.option("--per-token-ms", default=_COST.per_token_ms, show_default=True, help="Step cost: each token verified.")
@click.option("--per-kv-ms", default=_COST.per_kv_ms, show_default=True, help="Step cost: each token in the KV cache.")
@click.option("--per-draft-ms", type=float, help="Step cost: each draft position. [default: by drafter]")
@click.option(
    "--per-prefill-ms", default=_COST.per_prefill_ms, show_default=True, help="Step cost: each prompt token computed."
)
@click.option(
    "--time-scale", default=1.0, show_default=True, help="Times every duration: 0.1 is ten times faster, 0 never waits."
)
@click.option("--served-model-name", multiple=True, help="Another model name that requests may ask for. Repeatable.")
@click.option(
    "--per-request-spec-decode-metrics",
    default="detailed",
    show_default=True,
    type=click.Choice(["none", "summary", "detailed"]),
    help="What each answer tells of its speculation (vLLM's flag; the other dialects have none).",
)
def simulate(**options: Unpack[SimulateOptions]) -> None:
    """Start the engine; what cannot be started is bad input (exit 2)."""
    try:
        if options["follow"]:
            follow(options["follow"], lambda line: click.echo(line, err=True))
            return
        config = simulator_config(options)
        run_simulator(config, _place(options), lambda address: click.echo(_banner(config, address), err=True))
    except ConfigError as error:
        raise click.UsageError(str(error)) from error


def simulator_config(options: SimulateOptions) -> SimulatorConfig:
    """Return the engine the options describe; ConfigError where there is none."""
    method = Method(options["drafter"])
    per_draft_ms = options["per_draft_ms"]
    cost = dataclasses.replace(
        _COST,
        base_ms=options["base_ms"],
        per_token_ms=options["per_token_ms"],
        per_kv_ms=options["per_kv_ms"],
        per_draft_ms=HABITS[method].per_draft_ms if per_draft_ms is None else per_draft_ms,
        per_prefill_ms=options["per_prefill_ms"],
    )
    return SimulatorConfig(
        seed=options["seed"],
        drafter=drafter(method, _depth(method, options["num_speculative_tokens"]), options["match_probability"]),
        acceptance=parse_acceptance(options["acceptance"]),
        cost=cost,
        faults=parse_faults(options["fault"]),
        max_num_seqs=options["max_num_seqs"],
        max_model_len=options["max_model_len"],
        output_mean_tokens=options["output_mean"],
        time_scale=options["time_scale"],
        spec_detail=options["per_request_spec_decode_metrics"],
        served_model_names=options["served_model_name"],
    )


def _depth(method: Method, asked: int | None) -> int:
    if asked is not None:
        return asked
    return 0 if method is Method.NONE else DEFAULT_DEPTH


def _place(options: SimulateOptions) -> Place:
    return Place(
        host=options["host"],
        port=options["port"],
        port_file=options["port_file"],
        prompts=options["prompts"],
        truth=options["truth"],
        dialect=options["dialect"],
    )


def _banner(config: SimulatorConfig, address: str) -> str:
    asked = config.drafter
    what = f"drafter {asked.method}, {asked.num_speculative_tokens} drafts" if asked.speculates else "no drafter"
    lies = f", faults: {', '.join(config.faults.values)}" if config.faults.values else ""
    return f"simulated engine ({what}{lies}) listening on {address}"
