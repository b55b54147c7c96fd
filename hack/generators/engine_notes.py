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
Every arm, including the baseline, has `--enable-metrics` for the counters that checks compare with the records, and
`--enable-cache-report`, which shows whether the prompt cache is used. Neither changes what the engine computes. With
`spec.engine.equalizeArms: On` also `--max-running-requests` (speculation otherwise sets it to 48, and the baseline has
no limit), `--disable-radix-cache`, `--sampling-defaults openai` and `--stream-interval 1`.""",
    EngineKind.TENSORRT_LLM: """\
Every arm, including the baseline, has `enable_iter_perf_stats` and `return_perf_metrics`, which the client needs. With
`spec.engine.equalizeArms: On` also `kv_cache_config: {enable_block_reuse: false}`, `stream_interval: 1`, an n-gram pool
per request (`is_public_pool: false`), and no overlap scheduler if any arm's drafter runs without it.""",
    EngineKind.LLAMA_CPP: """\
Every arm, including the baseline, has `--parallel` with one slot per request, `--metrics` for its counters, and
`--slots`, which shows whether speculation is active. Each request disables the prompt cache
(`cache_prompt: false`).""",
    EngineKind.TRANSFORMERS: """\
A research runtime: every result is labelled as such. The default image contains neither torch nor transformers. The
same Dockerfile builds one that does:

```console
$ docker build --target research -t REGISTRY/specbench:TAG-research .
$ docker push REGISTRY/specbench:TAG-research
```

Set it as `spec.engine.image: REGISTRY/specbench:TAG-research`. It is large, because torch includes the CUDA libraries:
3.2 GB to download and 6.3 GB installed on x86-64 (torch 2.15). We have not built this image. The model comes from a
folder (`spec.model.path` or `pvc`), or is downloaded from the hub into the engine's /tmp.""",
}
