"""An engine with continuous batching, chunked prefill and a prompt cache, independent of the simulator."""
