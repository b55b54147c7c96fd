"""The research runtime: a small HTTP server of ours around Hugging Face transformers' `generate`.

Spec-Bench and most papers measured on such a runtime: one request at a time, no batching, no CUDA graphs. Its speed-ups
say nothing of a production engine, and results are labelled so. It speaks vLLM's wire. torch and transformers are an
extra, and are loaded in this room alone.
"""
