"""Runs `generate` of transformers and records what it drafts, accepts and emits in each step.

Drafting and verification, with a draft model or prompt lookup, are the library's own. Two settings make its figures
comparable with those of the engines: the draft length is fixed (no schedule, no confidence threshold), and the pass
over the prompt verifies no draft tokens, so that the first token comes from the prompt alone.

Models are loaded without their own sampling defaults: generation_config sets temperature, top-k or penalties that a
request does not set. It is ignored, so that every arm samples in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import transformers
from transformers.generation.logits_process import LogitsProcessorList, TemperatureLogitsWarper, TopPLogitsWarper
from transformers.generation.stopping_criteria import StoppingCriteriaList

from specbench_api.spec.drafter import Method
from specbench_client.openai_server_formats import RejectedBody
from specbench_client.research.medusa import MedusaHeads, MedusaRequest, decode, load_heads
from specbench_client.research.runtime import (
    BadResearchSetup,
    GenerationRequest,
    GenerationStep,
    ResearchError,
    ResearchSettings,
    TokenIds,
)

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
UNBOUNDED = 10**9
"""Length limit of a model that declares none."""


@dataclass(frozen=True)
class LoadedTarget:
    """A loaded target. `eos`: all tokens that end a text according to its config and tokenizer."""

    model: Any
    tokenizer: Any
    eos: frozenset[int]
    max_length: int


def load_target(settings: ResearchSettings) -> LoadedTarget:
    """Load target and tokenizer. Raises BadResearchSetup."""
    transformers.utils.logging.disable_progress_bar()  # keeps errors visible at the end of the log
    if settings.threads:
        torch.set_num_threads(settings.threads)
    model = load_model(settings.model, settings.revision, settings, "--model")
    source = settings.tokenizer or settings.model
    revision = None if settings.tokenizer else settings.revision
    tokenizer = _from_pretrained(transformers.AutoTokenizer, source, {"revision": revision or "main"}, "--model")
    eos = _eos(model, tokenizer)
    model.generation_config = transformers.GenerationConfig()
    return LoadedTarget(model, tokenizer, eos, _max_length(model, settings))


def load_model(source: str, revision: str | None, settings: ResearchSettings, option: str) -> Any:
    """Load a causal language model onto the device. Raises BadResearchSetup."""
    dtype: Any = "auto" if settings.dtype == "auto" else DTYPES[settings.dtype]
    model = _from_pretrained(
        transformers.AutoModelForCausalLM, source, {"revision": revision or "main", "dtype": dtype}, option
    )
    try:
        return model.to(device_of(settings)).eval()
    except (RuntimeError, AssertionError) as error:  # out of memory; torch without CUDA
        raise BadResearchSetup(f"--device {settings.device}: {error}") from error


def device_of(settings: ResearchSettings) -> str:
    """Return the device: that of the command line, or else a GPU if there is one."""
    if settings.device != "auto":
        return settings.device
    return "cuda" if torch.cuda.is_available() else "cpu"


def _from_pretrained(kind: Any, source: str, options: dict[str, Any], option: str) -> Any:
    try:
        return kind.from_pretrained(source, **options)
    except (OSError, ValueError) as error:
        raise BadResearchSetup(f"{option} {source}: {error}") from error


def _eos(model: Any, tokenizer: Any) -> frozenset[int]:
    configured = model.generation_config.eos_token_id
    tokens = configured if isinstance(configured, list) else [configured]
    return frozenset(token for token in (*tokens, tokenizer.eos_token_id) if token is not None)


def _max_length(model: Any, settings: ResearchSettings) -> int:
    most = getattr(model.config.get_text_config(), "max_position_embeddings", None) or UNBOUNDED
    if settings.max_model_len and settings.max_model_len > most:
        raise BadResearchSetup(f"--max-model-len {settings.max_model_len}: the model supports at most {most}: lower it")
    return settings.max_model_len or int(most)


# The page `/facts` describes the loaded models, not the options of the command line.

NONE = "none"


def model_facts(settings: ResearchSettings, model: Any, drafter: Any) -> Mapping[str, str | int | None]:
    """Return the facts of `GenerationRuntime.facts`. `drafter`: a model, Medusa heads, or None without weights."""
    on_gpu = model.device.type == "cuda"
    return {
        "model": settings.model,
        "dtype": str(model.dtype).removeprefix("torch."),
        "quantization": _quantization(model),
        "max_running_requests": 1,
        "prefix_cache": False,
        "cuda_graphs": False,
        "attention_backend": getattr(model.config, "_attn_implementation", None),
        "torch": str(torch.__version__),
        "cuda": torch.version.cuda or NONE,
        "gpu": torch.cuda.get_device_name(model.device) if on_gpu else None,
        "drafter_vocabulary": _vocabulary(drafter),
        "weights_bytes": _bytes(model),
        "drafter_weights_bytes": 0 if drafter is None else _bytes(drafter),
        "kv_bytes_per_token": _kv_bytes_per_token(model),
        "gpu_memory_used_bytes": torch.cuda.memory_reserved(model.device) if on_gpu else None,
    }


def _bytes(model: Any) -> int:
    """Return the size of the parameters; shared parameters count once."""
    return sum(one.numel() * one.element_size() for one in model.parameters())


def _quantization(model: Any) -> str:
    config = getattr(model.config, "quantization_config", None)
    return NONE if config is None else str(getattr(config, "quant_method", "unnamed"))


def _vocabulary(drafter: Any) -> int | None:
    """Return a draft model's vocabulary size; None for Medusa heads, which use the target's vocabulary."""
    config = getattr(drafter, "config", None)
    return None if config is None else int(config.get_text_config().vocab_size)


def _kv_bytes_per_token(model: Any) -> int | None:
    """Return the bytes of keys and values of all layers per token; None if the config lacks the dimensions."""
    config = model.config.get_text_config()
    layers, heads = (getattr(config, name, None) for name in ("num_hidden_layers", "num_attention_heads"))
    if layers is None or heads is None:
        return None
    width = getattr(config, "head_dim", None) or config.hidden_size // heads
    pairs = getattr(config, "num_key_value_heads", None) or heads
    return int(2 * layers * pairs * width * torch.empty((), dtype=model.dtype).element_size())


Emit = Callable[[GenerationStep], None]
Stopped = Callable[[], bool]


class TransformersRuntime:
    """A `GenerationRuntime` that uses transformers."""

    version: str = transformers.__version__

    def __init__(self, settings: ResearchSettings) -> None:
        """Load the models. Raises BadResearchSetup."""
        self._settings = settings
        self._target: LoadedTarget = load_target(settings)
        self.model_name = settings.served_model_name or settings.model
        self.max_length = self._target.max_length
        self.vocabulary = int(self._target.model.config.get_text_config().vocab_size)
        self.eos = self._target.eos
        self.speculative_tokens = 0 if settings.drafter is Method.NONE else settings.num_speculative_tokens
        self._heads: MedusaHeads | None = None
        self._assistant: Any = None
        if settings.drafter is Method.MEDUSA:
            self._heads = load_heads(settings, self._target.model)
        if settings.drafter is Method.DRAFT_MODEL:
            self._assistant = _assistant(settings, self.vocabulary)

    def facts(self) -> Mapping[str, str | int | None]:
        return model_facts(self._settings, self._target.model, self._assistant or self._heads)

    def chat(self, messages: Sequence[Mapping[str, str]]) -> TokenIds:
        if self._target.tokenizer.chat_template is None:
            raise RejectedBody("This model has no chat template: use /v1/completions.")
        try:
            ids = self._target.tokenizer.apply_chat_template(
                list(messages), add_generation_prompt=True, tokenize=True, return_dict=False
            )
        except Exception as error:  # a template is a program and can raise anything
            raise RejectedBody(f"The model's chat template rejected the messages: {error}") from error
        return tuple(ids)

    def encode(self, text: str) -> TokenIds:
        return tuple(self._target.tokenizer(text)["input_ids"])

    def decode(self, tokens: TokenIds) -> str:
        return str(self._target.tokenizer.decode(list(tokens), skip_special_tokens=True))

    def generate(self, job: GenerationRequest, emit: Emit, stopped: Stopped) -> None:
        if job.seed is None:
            torch.seed()
        else:
            torch.manual_seed(job.seed)
        with torch.inference_mode():
            self._answer(job, emit, stopped)

    def _answer(self, job: GenerationRequest, emit: Emit, stopped: Stopped) -> None:
        prompt = torch.tensor([job.prompt], device=self._target.model.device)
        if self._heads is not None:
            eos = frozenset[int]() if job.ignore_eos else self.eos
            answer = MedusaRequest(job.prompt, job.max_tokens, eos, _token_chooser(job))
            decode(self._target.model, self._heads, answer, emit, stopped)
        elif self._settings.drafter is Method.NONE:
            self._generate(prompt, job, PlainStepRecorder(emit), stopped)
        else:
            self._assisted(prompt, job, AssistedStepRecorder(emit), stopped)

    def _assisted(self, prompt: Any, job: GenerationRequest, recorder: AssistedStepRecorder, stopped: Stopped) -> None:
        """Generate with the recorder wrapped around the library's drafter, the only place to observe acceptance."""
        model = self._target.model
        create = model._get_candidate_generator  # noqa: SLF001 -- creates every drafter of the library

        def create_recorded(**options: Any) -> AssistedStepRecorder:
            return recorder.wrap(create(**options))

        model._get_candidate_generator = create_recorded  # noqa: SLF001
        try:
            self._generate(prompt, job, recorder, stopped)
        finally:
            del model._get_candidate_generator  # noqa: SLF001 -- restores the class's method

    def _generate(self, prompt: Any, job: GenerationRequest, streamer: Any, stopped: Stopped) -> None:
        settings, drafting = self._settings, dict[str, Any]()
        if settings.drafter is Method.NGRAM:
            drafting["prompt_lookup_num_tokens"] = settings.num_speculative_tokens
            drafting["max_matching_ngram_size"] = settings.prompt_lookup_max
        eos = [] if job.ignore_eos else sorted(self.eos)
        sampling = {"do_sample": True, "temperature": job.temperature, "top_p": job.top_p, "top_k": 0}
        config = transformers.GenerationConfig(
            max_new_tokens=job.max_tokens,
            eos_token_id=eos or None,
            # Nothing is padded, but any other token here would be masked for the draft model wherever it occurs.
            pad_token_id=eos[0] if eos else None,
            **(sampling if job.temperature > 0 else {"do_sample": False}),
            **drafting,
        )
        self._target.model.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            generation_config=config,
            streamer=streamer,
            assistant_model=self._assistant,
            stopping_criteria=StoppingCriteriaList([_criterion(stopped)]),
        )


class PlainStepRecorder:
    """A streamer for generation without drafts: every token is a step. The first value it receives is the prompt."""

    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        self._begun = False

    def put(self, value: Any) -> None:
        if self._begun:
            self._emit(GenerationStep(_tokens(value)))
        self._begun = True

    def end(self) -> None:
        """Do nothing: no tokens are pending."""


class AssistedStepRecorder:
    """Wraps the library's drafter and receives its stream, to record each step.

    The library's loop requests draft tokens, streams the step's tokens, and reports to the drafter how many of its
    draft tokens were accepted.
    """

    requires_model_outputs = False

    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        self._drafter: Any = None
        self._begun = False
        self._first = True
        self._drafted = 0
        self._streamed: TokenIds = ()

    def wrap(self, drafter: Any) -> AssistedStepRecorder:
        """Wrap this drafter, which the library creates when the generation begins."""
        self._drafter = drafter
        return self

    def get_candidates(self, input_ids: Any, **_: Any) -> tuple[Any, Any]:
        """Return draft tokens from the drafter; none in the pass over the prompt."""
        if self._first:
            self._first = False
            self._read_prompt(input_ids)
            return input_ids, None
        candidates, logits = self._drafter.get_candidates(input_ids)
        self._drafted = candidates.shape[1] - input_ids.shape[1]
        return candidates, logits

    def put(self, value: Any) -> None:
        """Receive the tokens of a step."""
        if self._streamed:
            raise ResearchError(
                "transformers streamed two steps without reporting acceptance: use another version of transformers"
            )
        self._streamed = _tokens(value) if self._begun else ()
        self._begun = True

    def update_candidate_strategy(self, input_ids: Any, scores: Any, num_matches: Any) -> None:
        """Receive the number of accepted draft tokens and emit the step."""
        accepted = int(num_matches)
        if len(self._streamed) != accepted + 1:
            raise ResearchError(f"{len(self._streamed)} tokens were streamed, but {accepted} draft tokens accepted")
        self._emit(GenerationStep(self._streamed, self._drafted, accepted))
        if self._drafted:
            self._drafter.update_candidate_strategy(input_ids, scores, num_matches)
        self._streamed, self._drafted = (), 0

    def end(self) -> None:
        """Do nothing: all steps have been emitted."""

    def _read_prompt(self, input_ids: Any) -> None:
        """Let a draft model process the prompt with the target, as in the engines; its one draft token is dropped."""
        configured = getattr(self._drafter, "num_assistant_tokens", None)
        if configured is not None:
            self._drafter.num_assistant_tokens = 1
            self._drafter.get_candidates(input_ids)
            self._drafter.num_assistant_tokens = configured


def _assistant(settings: ResearchSettings, vocabulary: int) -> Any:
    """Load the draft model, with a fixed number of draft tokens per step."""
    assert settings.drafter_model is not None
    model = load_model(settings.drafter_model, settings.drafter_revision, settings, "--drafter-model")
    draft_vocabulary = model.config.get_text_config().vocab_size
    if draft_vocabulary != vocabulary:
        raise BadResearchSetup(
            f"--drafter-model {settings.drafter_model}: its vocabulary has {draft_vocabulary} tokens and the target's"
            f" {vocabulary}: give a draft model with the target's tokenizer"
        )
    model.generation_config = transformers.GenerationConfig(
        num_assistant_tokens=settings.num_speculative_tokens,
        num_assistant_tokens_schedule="constant",
        assistant_confidence_threshold=0.0,
    )
    return model


def _tokens(value: Any) -> TokenIds:
    return tuple(value.reshape(-1).tolist())


def _criterion(stopped: Stopped) -> Callable[..., Any]:
    def criterion(input_ids: Any, _scores: Any, **_: Any) -> Any:
        return torch.full((input_ids.shape[0],), stopped(), device=input_ids.device, dtype=torch.bool)

    return criterion


def _token_chooser(job: GenerationRequest) -> Callable[[Any], int]:
    """Return the function that chooses a token from the target's logits: the most likely one, or a sample."""
    if job.temperature == 0:
        return lambda logits: int(logits.argmax())
    warp = LogitsProcessorList([TemperatureLogitsWarper(job.temperature)])
    if job.top_p < 1:
        warp.append(TopPLogitsWarper(job.top_p))

    def draw(logits: Any) -> int:
        warped = warp(None, logits[None].float())
        return int(torch.multinomial(warped.softmax(-1)[0], 1))

    return draw
