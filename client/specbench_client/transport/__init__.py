"""HTTP transports that timestamp the bytes they send and receive; independent of engines, tokens and JSON.

Received bytes are timestamped and stored unparsed; they are parsed after the exchange has ended (`sse`), so that
parsing does not affect measured times. Requests that are not measured (health, metrics, identity) use
`control_client`, over connections of their own.
"""
