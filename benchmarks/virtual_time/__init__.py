"""Complete runs in virtual time: the real engine core and client, without clock, sockets or processes between them.

Real are: the simulator's engine (continuous batching, step costs, draft and verify, faults) and its dialects, which
write the response bytes; the client's loops, fillers, phases, warm-up and self-monitoring; its dialects, which parse
those bytes into records; Parquet; summaries, comparison and every check. Simulated are the kernel's network and time:
an event loop that never waits runs an hour in seconds and produces the same records for the same seed.
"""
