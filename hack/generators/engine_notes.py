"""The introduction of each engine in docs/reference/engines.md: the settings of every arm, and its image."""

from __future__ import annotations

from collections.abc import Mapping

from specbench_api.spec.engine import EngineKind

NOTES: Mapping[EngineKind, str] = {
    EngineKind.VLLM: """\
Every arm, including the baseline, has `--stream-interval 1` and `--enable-prompt-tokens-details`, which the client
needs. With `spec.engine.equalizeArms: On` also `--no-enable-prefix-caching`, because a repeated prompt would skip its
prefill, and `--generation-config vllm`, because a model may have its own sampling defaults.""",
    EngineKind.SGLANG: """\
Every arm, including the baseline, has `--enable-metrics` for the counters that are compared with the records, and
`--enable-cache-report`, without which a prompt cache that is on although it should be off would go unnoticed. Neither
changes what is computed. With `spec.engine.equalizeArms: On` also `--max-running-requests` (speculation otherwise sets
it to 48, while the baseline has no limit), `--disable-radix-cache`, `--sampling-defaults openai` and
`--stream-interval 1`.""",
    EngineKind.TENSORRT_LLM: """\
Every arm, including the baseline, has `enable_iter_perf_stats` and `return_perf_metrics`, which the client needs. With
`spec.engine.equalizeArms: On` also `kv_cache_config: {enable_block_reuse: false}`, `stream_interval: 1`, an n-gram pool
per request (`is_public_pool: false`), and no overlap scheduler if any arm's drafter runs without it.""",
    EngineKind.LLAMA_CPP: """\
Every arm, including the baseline, has `--parallel` with one slot per request, `--metrics` for its counters, and
`--slots`, which shows whether speculation is active. The prompt cache is disabled in each request (`cache_prompt:
false`).""",
    EngineKind.TRANSFORMERS: """\
A research runtime: results are labelled as such, whether it was launched or measured as an endpoint. The default image
contains neither torch nor transformers. Build one that does from the same Dockerfile:

```console
$ docker build --target research -t REGISTRY/specbench:TAG-research .
$ docker push REGISTRY/specbench:TAG-research
```

Set it as `spec.engine.image: REGISTRY/specbench:TAG-research`. It is large: torch's wheel on the package index includes
the CUDA libraries, 3.2 GB to download and 6.3 GB installed on x86-64 (torch 2.15). With these pinned versions the
baseline and all three drafters were served on a CPU; the image itself has not been built by us. Use a folder of models
(`spec.model.path` or `pvc`), or let it download from the hub into its own /tmp.""",
}
