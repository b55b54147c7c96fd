"""HTTP dialects of the engines: request bodies, and parsers of answers, counters and identity. Pure.

There is one module per engine kind, which implements the protocol in `dialect`; `registry` maps engines to dialects.
To add an engine, add a module and its row in `registry`. The modules of engines extend `openai` and do not import each
other.
"""
