"""`python -m specbench_client.research`: the command line of the research runtime.

Exit codes: 2 for an invalid command line or model, 0 after a signal.
"""

from __future__ import annotations

import logging
from typing import Any

import click
from aiohttp import web

from specbench_api.spec.drafter import Method
from specbench_client.openai_server_formats import http_url
from specbench_client.optional_dependencies import install_hint
from specbench_client.research.runtime import DRAFTING_METHODS, BadResearchSetup, ResearchSettings
from specbench_client.research.server import ResearchServer

GRACE_SECONDS = 2.0
"""Time for open streams to end after a signal."""
NEEDS_MODEL = (Method.DRAFT_MODEL, Method.MEDUSA)

HELP = """Serve a model with Hugging Face transformers: a research runtime that serves one request at a time.

\b
  python -m specbench_client.research --model ./tiny --port 8000
  … --drafter ngram --num-speculative-tokens 5
  … --drafter draft_model --drafter-model ./tinier --num-speculative-tokens 3
  … --drafter medusa --drafter-model ./heads.safetensors --num-speculative-tokens 3

The HTTP API is vLLM's: /v1/chat/completions, /v1/completions, /v1/models, /version, /metrics, /health.
The additional page /facts describes models, drafter and device.
"""


@click.command(help=HELP)
@click.option("--model", required=True, help="Folder of the target model, or its name on the hub.")
@click.option("--revision", help="Revision of the target model on the hub.")
@click.option("--tokenizer", help="Folder or hub name of the tokenizer. [default: the model's]")
@click.option("--served-model-name", help="Name in the API. [default: --model]")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", default=8000, show_default=True, type=click.IntRange(0, 65535), help="Port to listen on.")
@click.option(
    "--max-model-len", type=click.IntRange(min=2), help="Maximum tokens of prompt and answer. [default: the model's]"
)
@click.option(
    "--dtype",
    default="auto",
    show_default=True,
    type=click.Choice(["auto", "float32", "bfloat16", "float16"], case_sensitive=False),
    help="Type of the weights; auto: as stored. Only float32 gives every drafter the baseline's text.",
)
@click.option("--device", default="auto", show_default=True, help="Device name of torch; auto: cuda if available.")
@click.option("--threads", type=click.IntRange(min=1), help="Number of CPU threads. [default: torch's]")
@click.option(
    "--drafter",
    default=Method.NONE.value,
    show_default=True,
    type=click.Choice([str(method) for method in DRAFTING_METHODS], case_sensitive=False),
    help="Method of drafting.",
)
@click.option("--drafter-model", help="draft_model: folder or hub name. medusa: the heads' file, folder or hub name.")
@click.option("--drafter-revision", help="Revision of the drafter on the hub.")
@click.option(
    "--num-speculative-tokens",
    "-k",
    default=3,
    show_default=True,
    type=click.IntRange(1, 64),
    help="Draft tokens per step.",
)
@click.option(
    "--prompt-lookup-max", default=3, show_default=True, type=click.IntRange(1, 64), help="ngram: longest suffix."
)
def serve(host: str, port: int, drafter: str, **options: Any) -> None:
    """Load the models, then serve. A model that cannot be loaded is a usage error."""
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    settings = ResearchSettings(drafter=Method(drafter), **options)
    if (settings.drafter in NEEDS_MODEL) != (settings.drafter_model is not None):
        raise click.UsageError(
            "--drafter draft_model and medusa require --drafter-model, and the other drafters do not accept it"
        )
    try:
        runtime = _runtime(settings)
    except BadResearchSetup as error:
        raise click.UsageError(str(error)) from error
    application = ResearchServer(runtime).application()
    description = (
        f"research runtime: {runtime.model_name} on transformers {runtime.version}, drafter {settings.drafter}"
    )
    click.echo(f"{description}; listening on {http_url(host, port)}", err=True)
    web.run_app(
        application,
        host=host,
        port=port,
        print=None,
        access_log=None,
        shutdown_timeout=GRACE_SECONDS,
        handler_cancellation=True,  # stop generating when the client disconnects
    )


def _runtime(settings: ResearchSettings) -> Any:
    try:
        from specbench_client.research.generation import TransformersRuntime  # noqa: PLC0415 -- an extra
    except ImportError as error:
        raise BadResearchSetup(
            f"torch and transformers are not installed: {install_hint('transformers')}: {error}"
        ) from error
    return TransformersRuntime(settings)


if __name__ == "__main__":
    serve(prog_name="python -m specbench_client.research")
