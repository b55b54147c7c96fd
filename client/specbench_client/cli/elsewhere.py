"""Flags of other load generators, told by our own names where somebody gives them."""

from __future__ import annotations

import click

OURS = {
    "--num-prompts": "--requests",
    "--request-count": "--requests",
    "--max-concurrency": "--concurrency",
    "--request-rate": "--rate",
    "--base-url": "--endpoint",
    "--url": "--endpoint",
    "--target": "--endpoint",
    "--backend": "--dialect",
    "--dataset-name": "--dataset",
    "--dataset-path": "--dataset",
    "--input-file": "--dataset",
    "--data": "--dataset",
    "--output-len": "--max-tokens",
    "--max-seconds": "--duration",
    "--benchmark-duration": "--duration",
    "--num-warmups": "--warmup",
    "--warmup-request-count": "--warmup",
    "--goodput": "--slo-tpot-ms",
    "--result-dir": "--results",
    "--save-result": "--results",
}
"""A flag of `vllm bench serve`, SGLang's bench_serving, AIPerf or GuideLLM → the flag of `specbench measure`."""


class KnowsOthers(click.Command):
    """A command that tells its own flag to who gives another tool's."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As click does; of an option that is not ours but known, ours is named."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            if error.option_name not in OURS:
                raise
            told = f"No such option '{error.option_name}': here it is '{OURS[error.option_name]}'."
            raise click.NoSuchOption(error.option_name, told, ctx=ctx) from error
