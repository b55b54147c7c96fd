"""The stopwatch: bytes out, bytes in, and when. Nothing here knows an engine, a token or JSON.

What arrives is stamped and kept unparsed; parsing happens after the exchange, off the stopwatch (`sse`). Requests
that are not measured (health, scrapes, identity) go through `control`, over connections of their own.
"""
