"""Hugging Face transformers behind our own small server: the research runtime (`specbench_client.research`).

It processes one request at a time while others wait, so it is compared at concurrency 1, and its results are labelled
as a research runtime's. Its image is built with `--target research`; the default image is specbench's own, which does
not contain torch and prints which image to build.
"""

from __future__ import annotations

from collections.abc import Sequence

from specbench_api.errors import Problem
from specbench_api.launch.arguments import EngineFlags, argument_problems, unsupported_fields
from specbench_api.launch.launcher import (
    GREEDY,
    PROBABILISTIC,
    REJECTION,
    TOKEN_MATCH,
    ContextRules,
    LaunchRequest,
    LaunchSpec,
    Verification,
    default_verification,
    model_sources,
    pinned_revision,
    target_path,
    uri_problems,
)
from specbench_api.spec.drafter import Drafter, Method
from specbench_api.spec.engine import Engine
from specbench_api.spec.model import Target

PORT = 8000
PROGRAM = ("python", "-m", "specbench_client.research")
_MANAGED = (
    "--model", "--revision", "--tokenizer", "--served-model-name", "--host", "--port", "--drafter", "--drafter-model",
    "--drafter-revision", "--num-speculative-tokens", "--prompt-lookup-max",
)  # fmt: skip
_ALIASES = {"-k": "--num-speculative-tokens"}
_REMEDIES = {
    "--model": "set spec.model",
    "--revision": "set spec.model.revision",
    "--tokenizer": "set spec.model.tokenizer",
    "--served-model-name": "set spec.model.name",
    "--drafter": "set drafters[].method",
    "--drafter-model": "set drafters[].model",
    "--drafter-revision": "set drafters[].revision",
    "--num-speculative-tokens": "set drafters[].numSpeculativeTokens",
    "--prompt-lookup-max": "set drafters[].promptLookupMax",
}
_FLAGS = EngineFlags(_MANAGED, _ALIASES, _REMEDIES)
_UNSUPPORTED_FIELDS = ("draft_lengths", "speculative_config", "draft_tensor_parallel_size", "prompt_lookup_min")


class TransformersLauncher:
    """Starts the research runtime."""

    context = ContextRules(("--max-model-len",), needs_answer_space=False)

    def launch(self, order: LaunchRequest) -> LaunchSpec:
        """Return the command line of the research runtime."""
        engine, drafter = order.engine, order.drafter
        files, hub = model_sources(order)
        return LaunchSpec(
            image=engine.image or "",  # empty: the installation's own image
            command=tuple(engine.command) if engine.command else None,
            image_program=PROGRAM,
            local_programs=(PROGRAM,),
            args=(*_target(order.target), *_drafting(drafter), *engine.args, *(drafter.args if drafter else ())),
            port=PORT,
            env=engine.environment,
            served_model=order.target.name,
            files=files,
            hub=hub,
        )

    def problems(self, order: LaunchRequest) -> Sequence[Problem]:
        """Return contradicting and repeated arguments, and settings that the runtime does not support."""
        drafter = order.drafter
        found = argument_problems(order, _FLAGS, _target(order.target), _drafting(drafter))
        found += uri_problems(order.target, "transformers")
        if order.engine.tensor_parallel_size > 1:
            message = "the research runtime cannot split a model over GPUs"
            found.append(Problem("spec.engine.tensorParallelSize", message, "set it to 1"))
        if drafter:
            found += unsupported_fields(
                drafter, order.drafter_path, _UNSUPPORTED_FIELDS, "the research runtime", "remove it"
            )
        return found

    def verification(self, engine: Engine, drafter: Drafter) -> Verification:  # noqa: ARG002 -- no option sets it
        """Return the methods of `generate`; those of Medusa heads are our own."""
        is_drawn = drafter.method is Method.DRAFT_MODEL
        methods = (PROBABILISTIC, REJECTION) if is_drawn else (GREEDY, TOKEN_MATCH)
        return default_verification(*methods, "transformers 5.19.0")


def _target(target: Target) -> tuple[str, ...]:
    revision = pinned_revision(target)
    return (
        *("--model", target_path(target) or target.name),
        *(("--revision", revision) if revision else ()),
        *(("--tokenizer", target.tokenizer) if target.tokenizer else ()),
        *("--served-model-name", target.name),
    )


def _drafting(drafter: Drafter | None) -> tuple[str, ...]:
    if drafter is None:
        return ()
    length = ("--drafter", str(drafter.method), "--num-speculative-tokens", str(drafter.num_speculative_tokens))
    lookup = ("--prompt-lookup-max", str(drafter.prompt_lookup_max)) if drafter.prompt_lookup_max else ()
    model = ("--drafter-model", drafter.model) if drafter.model else ()
    revision = ("--drafter-revision", drafter.revision) if drafter.revision else ()
    return (*length, *lookup, *model, *revision)
