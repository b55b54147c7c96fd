"""From records to answers: figures of points and cells, paired speed-ups with intervals, and the headline. Pure.

No I/O, no clock, no chance without a seed: the same records give the same summary, byte for byte.

    statistics    resampling and intervals, knowing nothing of requests
    estimates     figures and ratios of requests, each with its interval
    slices, stepcost, crossover, prediction, lossless, decision    what a run is asked besides, each a room
    summary       all of that as the one answer of a run

    compare, curves                              several stored results beside each other
    schedule, oracle, replay, drift              what would be, and what has changed
    published, audit                             what others published, and whether a table agrees with itself
"""
