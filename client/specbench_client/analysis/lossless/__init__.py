"""Whether an arm's answers are the baseline's.

    greedy       at temperature 0: how often answers differ, beside the baseline against itself; an interval, a verdict
    places       where answers that differ begin to
    sampled      above: two permutation tests, of openings and of lengths, and the smallest difference they would find
    openings     how answers begin, as frequencies
    lengths      how long they are
    words        answers read again from the records: tidy rows keep a digest alone
    judge        one cell → Losslessness

How answers are compared and counted is `metrics.divergence`, which the check GreedyDivergence uses too.
"""
