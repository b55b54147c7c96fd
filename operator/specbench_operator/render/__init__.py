"""Manifests as plain dicts: pure, deterministic, whole. A golden test holds each of them entire."""
