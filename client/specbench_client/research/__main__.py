"""`python -m specbench_client.research`: the command line of the research runtime.

Exit codes: 2 the command line or the model, 0 a signal.
"""

from __future__ import annotations

import logging
from typing import Any

import click
from aiohttp import web

from specbench_client.extras import remedy
from specbench_client.research.errors import BadSetup
from specbench_client.research.server import Server
from specbench_client.research.settings import Drafting, Settings

GRACE_SECONDS = 2.0
"""How long open streams have to end after a signal."""
NEEDS_MODEL = (Drafting.DRAFT_MODEL, Drafting.MEDUSA)

HELP = """Serve a model by Hugging Face transformers: a research runtime, which answers one request at a time.

\b
  python -m specbench_client.research --model ./tiny --port 8000
  … --drafter ngram --num-speculative-tokens 5
  … --drafter draft_model --drafter-model ./tinier --num-speculative-tokens 3
  … --drafter medusa --drafter-model ./heads.safetensors --num-speculative-tokens 3

The wire is vLLM's: /v1/chat/completions, /v1/completions, /v1/models, /version, /metrics, /health.
Its own page /facts tells what it is made of.
"""


@click.command(help=HELP)
@click.option("--model", required=True, help="Folder of the target, or its name on the hub.")
@click.option("--revision", help="Of the target on the hub.")
@click.option("--tokenizer", help="Folder or hub name, where it is not the model's own.")
@click.option("--served-model-name", help="Name in the API. [default: --model]")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", default=8000, show_default=True, type=click.IntRange(0, 65535), help="Port to listen on.")
@click.option("--max-model-len", type=click.IntRange(min=2), help="Tokens of prompt and answer. [default: the model's]")
@click.option(
    "--dtype",
    default="auto",
    show_default=True,
    type=click.Choice(["auto", "float32", "bfloat16", "float16"]),
    help="Of the weights; auto: as they are stored. Only float32 gives every drafter the baseline's text.",
)
@click.option("--device", default="auto", show_default=True, help="torch's name of it; auto: cuda where there is one.")
@click.option("--threads", type=click.IntRange(min=1), help="Threads on a CPU. [default: torch's]")
@click.option(
    "--drafter",
    default=Drafting.NONE.value,
    show_default=True,
    type=click.Choice([one.value for one in Drafting]),
    help="How drafts are made.",
)
@click.option("--drafter-model", help="draft_model: folder or hub name. medusa: the heads' file, folder or hub name.")
@click.option("--drafter-revision", help="Of the drafter on the hub.")
@click.option(
    "--num-speculative-tokens", "-k", default=3, show_default=True, type=click.IntRange(1, 64), help="Drafts a step."
)
@click.option(
    "--prompt-lookup-max", default=3, show_default=True, type=click.IntRange(1, 64), help="ngram: longest suffix."
)
def serve(host: str, port: int, drafter: str, **options: Any) -> None:
    """Load, then listen; what cannot be loaded is a usage error."""
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    settings = Settings(drafter=Drafting(drafter), **options)
    if (settings.drafter in NEEDS_MODEL) != (settings.drafter_model is not None):
        raise click.UsageError("--drafter-model goes with --drafter draft_model and medusa, and they need it")
    try:
        runtime = _runtime(settings)
    except BadSetup as error:
        raise click.UsageError(str(error)) from error
    application = Server(runtime).application()
    said = f"research runtime: {runtime.model_name} on transformers {runtime.version}, drafter {settings.drafter}"
    click.echo(f"{said}; listening on http://{host}:{port}", err=True)
    web.run_app(
        application,
        host=host,
        port=port,
        print=None,
        access_log=None,
        shutdown_timeout=GRACE_SECONDS,
        handler_cancellation=True,  # who leaves is not generated for
    )


def _runtime(settings: Settings) -> Any:
    try:
        from specbench_client.research.generation import TransformersRuntime  # noqa: PLC0415 -- an extra
    except ImportError as error:
        raise BadSetup(f"torch and transformers are an extra: {remedy('transformers')}: {error}") from error
    return TransformersRuntime(settings)


if __name__ == "__main__":
    serve(prog_name="python -m specbench_client.research")
