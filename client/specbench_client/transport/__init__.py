"""HTTP transports that timestamp the bytes they send and receive; independent of engines, tokens and JSON.

Received bytes of a stream are timestamped and stored; all but its head is parsed after the exchange has ended, so that
parsing does not affect measured times. Requests that are not measured (health, metrics, identity) use
`control_client`, over connections of their own.
"""
