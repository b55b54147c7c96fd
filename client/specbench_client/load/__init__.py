"""Generates load: arrival schedules, closed and open loops in worker processes, and monitoring of the client itself.

The package gets an endpoint and prompts and depends on no engine. It writes no files: records leave through a callback.

    before a load      arrivals             when conversations of an open loop begin: drawn, or from a recording
                       machine_limits       the cores and the memory that this process may use
                       worker_shares        how many workers a load gets, and what each of them does
    main process       worker_pool          starts the workers, runs loads on them and stops them
                       warmup               decides when a warm-up is complete
    in between         shared_state         counters that the workers share in memory
    worker process     worker               the process, and its messages over the pipe
                       loops                streams that send when they are free, or conversations at scheduled times
                       request_buffer       encodes requests ahead of time; the next request of each stream
                       conversation_runner  runs a conversation, turn after turn, and parses answers while the sockets
                                            are idle
                       turns                one turn: its request, and the record of its answer
                       answer_rules         the rules: empty, broken, looping, and what the workload demands
                       judge_parent         has answers judged against schemas in a child process
                       judge_child          that process, which the kernel ends at a limit of CPU time
                       conversations        prompts with ids and seeds; filler conversations
    figures of a load  phases               ramp, steady state, drain; requests in flight over time
                       client_monitor       whether the client itself was late or short of CPU

Every process has its own event loop and waits for no other process: conversations are divided beforehand or drawn
from one counter. Times are absolute on a clock that all processes share, and are combined at the end.
"""
