"""From records to answers: figures of points and cells, paired speed-ups with intervals, and the headline. Pure.

No I/O, no clock, no chance without a seed: the same records give the same summary, byte for byte.

    statistics    resampling and intervals of any data
    estimates     figures and ratios of requests, each with its interval
    breakdown, stepcost, lossless, decision    further analyses of one run
    summary       the summary of a run, from all of these
    explanation, curves   the factors of a speed-up, and the speed-up along one axis

    compare              two stored results
    what_if, drift       what other drafting would gain, and what has changed
"""
