"""Benchmarks, and scripts that fit weights. They are not part of the installed package."""
