"""From a run's records to its summary: points, cells, what may be said of them, and the verdict. Pure.

point         what one point measured, and what its own checks found
cell          repeats of one arm at one load as one, compared with the baseline
claims        the one place in which a difference becomes a word
crossovers    up to which load each arm pays
seen          what was seen of each arm's launches
verdict       all of it in one sentence
run           the whole
"""
