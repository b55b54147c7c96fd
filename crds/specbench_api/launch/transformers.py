"""Hugging Face transformers behind our own small server: the research runtime (`specbench_client.research`).

It answers one request at a time: the others wait, so its comparisons are of a concurrency of 1, and results are
labelled as a research runtime's. An image of it is ours, built with `--target research`; the default one is the
installation's own, which holds no torch and says in one line what to build.
"""

from __future__ import annotations

from collections.abc import Sequence

from specbench_api.errors import Problem
from specbench_api.launch.arguments import contradictions, given_twice, repeated
from specbench_api.launch.launch import Launch, Order
from specbench_api.launch.unheard import unheard
from specbench_api.launch.weights import models_of, path_of, pinned
from specbench_api.spec.drafter import Drafter
from specbench_api.spec.engine import EngineKind
from specbench_api.spec.target import Target

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
_UNHEARD = ("draft_lengths", "speculative_config", "draft_tensor_parallel_size", "prompt_lookup_min")


class TransformersLauncher:
    """Renders the command line of the research runtime."""

    kind = EngineKind.TRANSFORMERS

    def launch(self, order: Order) -> Launch:
        """Render the command line."""
        engine, drafter = order.engine, order.drafter
        files, hub = models_of(order)
        return Launch(
            image=engine.image or "",  # empty: the installation's own image
            command=tuple(engine.command) if engine.command else None,
            image_program=PROGRAM,
            local_programs=(PROGRAM,),
            args=(*_target(order.target), *_drafting(drafter), *engine.args, *(drafter.args if drafter else ())),
            port=PORT,
            env={variable.name: variable.value for variable in engine.env},
            served_model=order.target.name,
            files=files,
            hub=hub,
        )

    def problems(self, order: Order) -> Sequence[Problem]:
        """Arguments that contradict managed flags, and what a runtime of one process and one request cannot do."""
        alike, drafter = _target(order.target), order.drafter
        found = contradictions(_MANAGED, order.engine.args, "spec.engine.args", _ALIASES, _REMEDIES, alike)
        found += repeated(order.engine.args, "spec.engine.args", _ALIASES)
        if order.target.uri:
            remedy = "use path or pvc, or the hub's name"
            found.append(Problem("spec.model.uri", "transformers does not fetch from a URI", remedy))
        if order.engine.tensor_parallel_size > 1:
            message = "the research runtime does not split a model over GPUs"
            found.append(Problem("spec.engine.tensorParallelSize", message, "set it to 1"))
        if drafter:
            path, ours = f"{order.drafter_path}.args", (*alike, *_drafting(drafter))
            found += contradictions(_MANAGED, drafter.args, path, _ALIASES, _REMEDIES, ours)
            found += given_twice(order.engine.args, drafter.args, path, _ALIASES)
            found += unheard(drafter, order.drafter_path, _UNHEARD, "the research runtime", "remove it")
        return found


def _target(target: Target) -> tuple[str, ...]:
    revision = pinned(target)
    return (
        *("--model", path_of(target) or target.name),
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
