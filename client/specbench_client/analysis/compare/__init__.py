"""Two stored results beside each other, and a gate over them. Pure.

The two were not measured in turn, as the arms of one run are: they are not paired in time. What differs from day to
day (heat, clocks, a neighbour, another node) is in the ratio of a latency and in no interval here, because one run on
each side cannot tell it. A speed-up is spared most of it: it is divided by the baseline of its own run first.
"""
