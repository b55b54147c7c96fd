"""Experiments whose truth is known: is what specbench says of them as sure as it says?"""
