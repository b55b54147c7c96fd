"""Measures the operator from outside: latencies, requests, CPU and memory with up to ten thousand runs."""
