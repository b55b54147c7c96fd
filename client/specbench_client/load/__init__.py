"""Load: who sends what when. Schedules, loops and turns, in several processes, and the client's watch over itself.

It is given an endpoint and prompts and knows no engine; it never writes a file, records leave through a callback.

    before       schedule, trace      when an open loop's conversations begin; drawn once
                 cores, shares        how many workers, and what each of them gets
    main side    crew                 starts the workers, leads them through a load, ends them
                 budget               how much failure a load may hold
                 steadiness           when a warm-up has warmed up
                 first_act            the first completion, before any of it
    between      orders               all that is said over the pipes
                 board                what workers must know of each other: shared memory, no messages
    a worker     worker, outbox       the process, and its records on their way home
                 closed_loop          streams that send when they are free
                 open_loop, alarm     conversations that begin when they are to
                 tray                 the next requests, written out ahead
                 talk, turns          a conversation, a turn of it
                 reader               answers read between the sockets' turns
                 transports           which stopwatch an endpoint gets
                 conversations        prompts with names and seeds of their own
    afterwards   phases, flight       ramp, steady state, drain; what was in flight when
                 watch                whether the client was in time, and had a core to spare

Every process has a loop of its own and nothing to wait for in another one: conversations are dealt beforehand, or
drawn from one counter; times are absolute on a clock that all of them share, and are put together at the end.
"""
