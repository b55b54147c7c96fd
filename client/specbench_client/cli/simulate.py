"""`specbench simulate`: serve the simulated engine in the foreground."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from specbench_client.cli.streams import echo
from specbench_client.cli.value_types import Choice
from specbench_client.simulator import (
    DRAFTER_PROFILES,
    ConfigError,
    SimulatedMethod,
    SimulatedStepCost,
    SimulatorConfig,
    choose_dialect,
    describe_faults,
    follow_leader,
    make_drafter,
    parse_acceptance,
    parse_faults,
    run_simulator,
)

DEFAULT_DEPTH = 3
_COST = SimulatedStepCost()
_FILE = click.Path(dir_okay=False, path_type=Path)


HELP = f"""Serve a simulated engine: the HTTP API of an engine, with known acceptance and step times, without a GPU.

The model name is "simulated", and every answer states that it is simulated.

\b
Examples:
  # a baseline and the same engine with a drafter
  specbench simulate --port 8000
  specbench simulate --port 8001 --drafter eagle3 --num-speculative-tokens 3 \\
    --acceptance default=0.6,coding=0.85/0.8/0.7 --prompts prompts.jsonl --truth truth.jsonl
\b
  # send a request, as to vLLM
  curl -s localhost:8000/v1/chat/completions -H 'Content-Type: application/json' -d \\
    '{{"model": "simulated", "temperature": 0, "messages": [{{"role": "user", "content": "Hello"}}]}}'
\b
  # a faulty engine: its usage counts 3 tokens too many
  specbench simulate --drafter ngram --num-speculative-tokens 4 --fault miscount=3

\b
Dialects (--dialect): whose HTTP API is served. What each answer reports about drafts:
  vllm          every step (--per-request-spec-decode-metrics); counters of steps, drafts and accepted drafts
  sglang        totals and a histogram, on request (return_spec_tokens_details); a counter of steps. /health
                generates a token, /ready does not; /flush_cache empties the prefix cache
  tensorrt-llm  the average number of tokens per iteration; no counter of tokens. Unknown fields are rejected

\b
Duration of a step in milliseconds:
  base + per-token x (sum over running requests of drafted + 1) + per-kv x (tokens in the KV cache)
       + per-draft x (draft depth) + per-prefill x (prompt tokens computed)

\b
Truth file (--truth): one JSON line per request, appended and flushed. step_accepted, accepted_tokens and
output_tokens are what was delivered: output_tokens = 1 + sum(step_accepted + 1). "reported" is what vLLM and SGLang
report: they count accepted drafts before the last step is truncated, and omit steps without drafts. "cached_tokens"
were not computed, and "text_faults" names the faults that changed the answer.

\b
Answers are made of random words, the same with and without a drafter, except:
  response_format with a JSON schema  a document that matches the schema, in each dialect's form of response_format
  tools                               a call of one of the tools, with arguments that match its parameters
  a text with ? and two numbers       its last line is "#### N", where N is the sum of the whole numbers in the text

\b
Faults (--fault NAME or NAME=VALUE, repeatable; the value shown is the default):
{"".join(f"  {line}" + chr(10) for line in describe_faults().splitlines())}"""


@click.command(name="simulate", help=HELP)
@click.option(
    "--follow",
    metavar="URL",
    help="Act as another node of the simulated engine at URL: wait for it, and run as long as it answers.",
)
@click.option("--dialect", default="vllm", show_default=True, help="The HTTP API to serve; see above.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port",
    default=8000,
    show_default=True,
    type=click.IntRange(0, 65535),
    help="Port to listen on; 0 selects a free port.",
)
@click.option("--port-file", type=_FILE, help="Write the port to this file once the engine listens.")
@click.option(
    "--drafter",
    default="none",
    show_default=True,
    type=Choice([one.value for one in SimulatedMethod]),
    help="How drafts are generated.",
)
@click.option(
    "--num-speculative-tokens",
    "-k",
    type=click.IntRange(min=1),
    metavar="K",
    help=f"Draft tokens per step.  [default: {DEFAULT_DEPTH} with a drafter]",
)
@click.option(
    "--match-probability",
    type=click.FloatRange(0, 1),
    help="Probability that a step has drafts.  [default: "
    f"ngram {DRAFTER_PROFILES[SimulatedMethod.NGRAM].match_probability}, "
    f"suffix {DRAFTER_PROFILES[SimulatedMethod.SUFFIX].match_probability}, others 1]",
)
@click.option(
    "--acceptance",
    default="0.7",
    show_default=True,
    metavar="P",
    help="Probability that a draft token is accepted if those before it were: 0.7; by category "
    "default=0.7,coding=0.85; by position 0.8/0.6/0.4 (the last one repeats).",
)
@click.option("--prompts", type=_FILE, help="JSONL with the category of each prompt; other prompts have 'default'.")
@click.option("--truth", type=_FILE, help="Append the true steps to this file, one JSON line per request.")
@click.option("--fault", multiple=True, metavar="NAME[=VALUE]", help="Inject a fault; see above. Repeatable.")
@click.option("--seed", default=0, show_default=True, help="Seed of texts, lengths and acceptance.")
@click.option("--output-mean", default=128.0, show_default=True, help="Mean length of an answer, in tokens.")
@click.option("--max-num-seqs", default=256, show_default=True, help="Maximum requests in one step; others wait.")
@click.option("--max-model-len", default=32768, show_default=True, help="Maximum of prompt and output tokens together.")
@click.option("--enable-prefix-caching", is_flag=True, help="Reuse the tokens that a prompt shares with earlier ones.")
@click.option(
    "--prefix-cache-tokens", default=1_000_000, show_default=True, help="Tokens that the prefix cache can keep."
)
@click.option("--base-ms", default=_COST.base_ms, show_default=True, help="Step cost in ms: fixed part.")
@click.option(
    "--per-token-ms", default=_COST.per_token_ms, show_default=True, help="Step cost in ms: per verified token."
)
@click.option(
    "--per-kv-ms", default=_COST.per_kv_ms, show_default=True, help="Step cost in ms: per token in the KV cache."
)
@click.option("--per-draft-ms", type=float, help="Step cost in ms: per draft position.  [default: by drafter]")
@click.option(
    "--per-prefill-ms",
    default=_COST.per_prefill_ms,
    show_default=True,
    help="Step cost in ms: per computed prompt token.",
)
@click.option(
    "--time-scale",
    default=1.0,
    show_default=True,
    help="Factor of every duration: 0.1 is ten times faster, 0 never waits.",
)
@click.option("--served-model-name", multiple=True, help="Another accepted model name. Repeatable.")
@click.option(
    "--per-request-spec-decode-metrics",
    default="detailed",
    show_default=True,
    type=Choice(["none", "summary", "detailed"]),
    help="What each answer reports about speculation (a flag of vLLM; other dialects have none).",
)
def simulate(**options: Any) -> None:
    """Start the engine. An invalid configuration is bad input (exit code 2)."""
    try:
        if options["follow"]:
            follow_leader(options["follow"], lambda line: echo(line, err=True))
            return
        config = simulator_config(options)
        server = run_simulator(
            config,
            choose_dialect(options["dialect"], config),
            lambda url: echo(_banner(config, url), err=True),
            **{name: options[name] for name in ("host", "port", "port_file", "prompts", "truth")},
        )
        asyncio.run(server)
    except ConfigError as error:
        raise click.UsageError(str(error)) from error


def simulator_config(options: Mapping[str, Any]) -> SimulatorConfig:
    """Return the engine that the options describe. Raises ConfigError."""
    method, depth = SimulatedMethod(options["drafter"]), options["num_speculative_tokens"]
    if depth is None:
        depth = 0 if method is SimulatedMethod.NONE else DEFAULT_DEPTH
    costs = {field.name: options[field.name] for field in dataclasses.fields(SimulatedStepCost)}
    if options["per_draft_ms"] is None:
        costs["per_draft_ms"] = DRAFTER_PROFILES[method].per_draft_ms
    return SimulatorConfig(
        seed=options["seed"],
        drafter=make_drafter(method, depth, options["match_probability"]),
        acceptance=parse_acceptance(options["acceptance"]),
        cost=SimulatedStepCost(**costs),
        faults=parse_faults(options["fault"]),
        max_num_seqs=options["max_num_seqs"],
        max_model_len=options["max_model_len"],
        prefix_cache_tokens=options["prefix_cache_tokens"] if options["enable_prefix_caching"] else 0,
        output_mean_tokens=options["output_mean"],
        time_scale=options["time_scale"],
        spec_detail=options["per_request_spec_decode_metrics"],
        served_model_names=options["served_model_name"],
    )


def _banner(config: SimulatorConfig, address: str) -> str:
    drafter = config.drafter
    what = f"drafter {drafter.method}, {drafter.num_speculative_tokens} drafts" if drafter.speculates else "no drafter"
    faults = f", faults: {', '.join(config.faults.values)}" if config.faults.values else ""
    return f"simulated engine ({what}{faults}) listening on {address}"
