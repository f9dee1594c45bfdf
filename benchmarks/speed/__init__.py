"""Measure the speed of coblock and of other programs; writes docs/benchmarks.md."""
