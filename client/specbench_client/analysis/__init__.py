"""From records to answers: figures of points and cells, paired speed-ups with intervals, and the verdict. Pure.

No I/O, no clock, no chance without a seed: the same records give the same summary, byte for byte.
"""
