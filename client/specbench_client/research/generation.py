"""transformers' own `generate`, with a witness that counts what it drafts, accepts and emits, step by step.

The library drafts and verifies, with a draft model or by looking the prompt up; nothing of that is rewritten here. Two
things are settled so that its figures mean what they mean on the engines: the length of a draft is fixed (no schedule,
no confidence threshold), and the pass over the prompt verifies no drafts, so that the first token is the prompt's own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import transformers
from transformers.generation.logits_process import LogitsProcessorList, TemperatureLogitsWarper, TopPLogitsWarper
from transformers.generation.stopping_criteria import StoppingCriteriaList

from specbench_client.research.errors import BadRequest, BadSetup, ResearchError
from specbench_client.research.facts import facts_of
from specbench_client.research.medusa import Answer, Heads, decode, load_heads
from specbench_client.research.models import Target, load_model, load_target
from specbench_client.research.runtime import Job, Step, Tokens
from specbench_client.research.settings import Drafting, Settings

Emit = Callable[[Step], None]
Stopped = Callable[[], bool]


class TransformersRuntime:
    """See `Runtime`."""

    version: str = transformers.__version__

    def __init__(self, settings: Settings) -> None:
        """Load everything. Raises BadSetup."""
        self._settings = settings
        self._target: Target = load_target(settings)
        self.model_name = settings.served_model_name or settings.model
        self.max_length = self._target.max_length
        self.vocabulary = int(self._target.model.config.get_text_config().vocab_size)
        self.eos = self._target.eos
        self.speculative_tokens = 0 if settings.drafter is Drafting.NONE else settings.num_speculative_tokens
        self._heads: Heads | None = None
        self._assistant: Any = None
        if settings.drafter is Drafting.MEDUSA:
            self._heads = load_heads(settings, self._target.model)
        if settings.drafter is Drafting.DRAFT_MODEL:
            self._assistant = _assistant(settings, self.vocabulary)

    def facts(self) -> Mapping[str, str | int | None]:
        return facts_of(self._settings, self._target.model, self._assistant or self._heads)

    def chat(self, messages: Sequence[Mapping[str, str]]) -> Tokens:
        if self._target.tokenizer.chat_template is None:
            raise BadRequest("This model has no chat template: ask /v1/completions.")
        try:
            ids = self._target.tokenizer.apply_chat_template(
                list(messages), add_generation_prompt=True, tokenize=True, return_dict=False
            )
        except Exception as error:  # a template is a program of the model's makers, and raises what it likes
            raise BadRequest(f"The model's chat template refuses the messages: {error}") from error
        return tuple(ids)

    def encode(self, text: str) -> Tokens:
        return tuple(self._target.tokenizer(text)["input_ids"])

    def decode(self, tokens: Tokens) -> str:
        return str(self._target.tokenizer.decode(list(tokens), skip_special_tokens=True))

    def generate(self, job: Job, emit: Emit, stopped: Stopped) -> None:
        if job.seed is None:
            torch.seed()
        else:
            torch.manual_seed(job.seed)
        with torch.inference_mode():
            self._answer(job, emit, stopped)

    def _answer(self, job: Job, emit: Emit, stopped: Stopped) -> None:
        prompt = torch.tensor([job.prompt], device=self._target.model.device)
        if self._heads is not None:
            eos = frozenset[int]() if job.ignore_eos else self.eos
            answer = Answer(job.prompt, job.max_tokens, eos, _chooser(job))
            decode(self._target.model, self._heads, answer, emit, stopped)
        elif self._settings.drafter is Drafting.NONE:
            self._generate(prompt, job, Plain(emit), stopped)
        else:
            self._assisted(prompt, job, Witness(emit), stopped)

    def _assisted(self, prompt: Any, job: Job, witness: Witness, stopped: Stopped) -> None:
        """With the witness around the library's drafter: it has no other place to tell what it accepted from."""
        model = self._target.model
        made = model._get_candidate_generator  # noqa: SLF001 -- the one place where every drafter of it is made

        def watched(**how: Any) -> Witness:
            return witness.around(made(**how))

        model._get_candidate_generator = watched  # noqa: SLF001
        try:
            self._generate(prompt, job, witness, stopped)
        finally:
            del model._get_candidate_generator  # noqa: SLF001 -- the instance's; the class has its own

    def _generate(self, prompt: Any, job: Job, streamer: Any, stopped: Stopped) -> None:
        settings, drafting = self._settings, dict[str, Any]()
        if settings.drafter is Drafting.NGRAM:
            drafting["prompt_lookup_num_tokens"] = settings.num_speculative_tokens
            drafting["max_matching_ngram_size"] = settings.prompt_lookup_max
        eos = [] if job.ignore_eos else sorted(self.eos)
        sampling = {"do_sample": True, "temperature": job.temperature, "top_p": job.top_p, "top_k": 0}
        config = transformers.GenerationConfig(
            max_new_tokens=job.max_tokens,
            eos_token_id=eos or None,
            # Nothing is padded. Any other token here would be hidden from the draft model wherever the text has it.
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


class Plain:
    """Listens to a generation without drafts: every token is a step. The first thing that is put is the prompt."""

    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        self._begun = False

    def put(self, value: Any) -> None:
        if self._begun:
            self._emit(Step(_tokens(value)))
        self._begun = True

    def end(self) -> None:
        """Nothing waits."""


class Witness:
    """Stands around the library's drafter and listens to its stream, so that both tell of each step.

    In the order of the library's loop: drafts are asked for, the step's tokens are streamed, and the drafter is told
    how many of its drafts were right.
    """

    requires_model_outputs = False

    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        self._drafter: Any = None
        self._begun = False
        self._first = True
        self._drafted = 0
        self._streamed: Tokens = ()

    def around(self, drafter: Any) -> Witness:
        """Stand around this drafter, which is made when the generation begins."""
        self._drafter = drafter
        return self

    def get_candidates(self, input_ids: Any, **_: Any) -> tuple[Any, Any]:
        """Ask for drafts; in the pass over the prompt, for none."""
        if self._first:
            self._first = False
            self._read_prompt(input_ids)
            return input_ids, None
        candidates, logits = self._drafter.get_candidates(input_ids)
        self._drafted = candidates.shape[1] - input_ids.shape[1]
        return candidates, logits

    def put(self, value: Any) -> None:
        """Take the tokens of a step."""
        if self._streamed:
            raise ResearchError("the library streamed two steps and told of none: this version of it is not known")
        self._streamed = _tokens(value) if self._begun else ()
        self._begun = True

    def update_candidate_strategy(self, input_ids: Any, scores: Any, num_matches: Any) -> None:
        """Hear how many drafts of the step were accepted."""
        accepted = int(num_matches)
        if len(self._streamed) != accepted + 1:
            raise ResearchError(f"{len(self._streamed)} tokens were streamed, and {accepted} drafts accepted")
        self._emit(Step(self._streamed, self._drafted, accepted))
        if self._drafted:
            self._drafter.update_candidate_strategy(input_ids, scores, num_matches)
        self._streamed, self._drafted = (), 0

    def end(self) -> None:
        """Nothing waits: every step was told of."""

    def _read_prompt(self, input_ids: Any) -> None:
        """Let a draft model read the prompt with the target, as it does on the engines; its one draft is dropped."""
        wanted = getattr(self._drafter, "num_assistant_tokens", None)
        if wanted is not None:
            self._drafter.num_assistant_tokens = 1
            self._drafter.get_candidates(input_ids)
            self._drafter.num_assistant_tokens = wanted


def _assistant(settings: Settings, vocabulary: int) -> Any:
    """The draft model, which drafts so many tokens a step and not one by its own judgement."""
    assert settings.drafter_model is not None
    model = load_model(settings.drafter_model, settings.drafter_revision, settings, "--drafter-model")
    theirs = model.config.get_text_config().vocab_size
    if theirs != vocabulary:
        raise BadSetup(f"--drafter-model {settings.drafter_model}: {theirs} tokens, and the target has {vocabulary}")
    model.generation_config = transformers.GenerationConfig(
        num_assistant_tokens=settings.num_speculative_tokens,
        num_assistant_tokens_schedule="constant",
        assistant_confidence_threshold=0.0,
    )
    return model


def _tokens(value: Any) -> Tokens:
    return tuple(value.reshape(-1).tolist())


def _criterion(stopped: Stopped) -> Callable[..., Any]:
    def criterion(input_ids: Any, _scores: Any, **_: Any) -> Any:
        return torch.full((input_ids.shape[0],), stopped(), device=input_ids.device, dtype=torch.bool)

    return criterion


def _chooser(job: Job) -> Callable[[Any], int]:
    """How a token is chosen from the target's logits: the likeliest, or drawn."""
    if job.temperature == 0:
        return lambda logits: int(logits.argmax())
    warp = LogitsProcessorList([TemperatureLogitsWarper(job.temperature)])
    if job.top_p < 1:
        warp.append(TopPLogitsWarper(job.top_p))

    def draw(logits: Any) -> int:
        warped = warp(None, logits[None].float())
        return int(torch.multinomial(warped.softmax(-1)[0], 1))

    return draw
