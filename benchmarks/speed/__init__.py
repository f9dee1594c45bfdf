"""How fast coblock is, beside the programs people use today; writes docs/benchmarks.md."""
