"""How each engine speaks: what to ask for, and how its answer, its counters and its name are read. Pure.

One file an engine kind behind the protocol in `dialect`; `table.DIALECTS` finds it. To add an engine: a file beside
these and its row there; no file knows another engine's.
"""
