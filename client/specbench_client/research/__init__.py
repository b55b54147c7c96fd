"""The research runtime: a small HTTP server around `generate` of Hugging Face transformers.

Spec-Bench and most papers measured on such a runtime: one request at a time, without batching or CUDA graphs. Its
speed-ups do not apply to production engines, and results are labelled accordingly. It serves vLLM's HTTP API. torch and
transformers are an optional extra and are imported only in this package.
"""
