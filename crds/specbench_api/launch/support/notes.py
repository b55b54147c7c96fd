"""What stands above an engine's table in docs/engines.md: what every arm gets beside its drafter, and its image."""

from __future__ import annotations

from collections.abc import Mapping

from specbench_api.spec.engine import EngineKind

NOTES: Mapping[EngineKind, str] = {
    EngineKind.VLLM: """\
Every arm, the baseline among them: `--stream-interval 1` and `--enable-prompt-tokens-details`, by which answers are
read. Levelled (`spec.engine.levelling: On`): `--no-enable-prefix-caching`, since a prompt that was seen before would
skip its prefill, and `--generation-config vllm`, since a model may bring sampling defaults of its own.""",
    EngineKind.SGLANG: """\
Every arm, the baseline among them: `--enable-metrics`, the counters that are held against the records, and
`--enable-cache-report`: without it no answer tells how much of its prompt came from a cache, and a cache that is on
although it was switched off would be found by no record. Neither changes what is computed. Levelled
(`spec.engine.levelling: On`): `--max-running-requests` (any speculation sets it to 48 where it is not given, and the
baseline to nothing), `--disable-radix-cache`, `--sampling-defaults openai` and `--stream-interval 1`.""",
    EngineKind.TENSORRT_LLM: """\
Every arm, the baseline among them: `enable_iter_perf_stats` and `return_perf_metrics`, which are what is measured.
Levelled (`spec.engine.levelling: On`): `kv_cache_config: {enable_block_reuse: false}`, `stream_interval: 1`, n-grams
that no request inherits from another (`is_public_pool: false`), and no overlap scheduler on any arm as soon as one arm
has a drafter that runs without it.""",
    EngineKind.LLAMA_CPP: """\
Every arm, the baseline among them: `--parallel`, a slot a request, and `--metrics` and `--slots`, its counters and
whether speculation is really on. The prompt cache is switched off in each request (`cache_prompt: false`).""",
    EngineKind.TRANSFORMERS: """\
A research runtime: results are labelled as such, whether it was launched or measured as an endpoint. The installation's
own image holds neither torch nor transformers. One that does is built from the same Dockerfile:

```console
$ docker build --target research -t REGISTRY/specbench:TAG-research .
$ docker push REGISTRY/specbench:TAG-research
```

Give it in `spec.engine.image: REGISTRY/specbench:TAG-research`. It is large: torch's wheel of the package index brings
CUDA's libraries along, 3.2 GB of downloads and 6.3 GB installed on x86-64 (torch 2.15). With these very pins the
baseline and all three drafters were served on a CPU; the image itself has not been built by us. Use a folder of models
(`spec.model.path` or `pvc`), or let it fetch from the hub into its own /tmp.""",
}
