"""Compare two checkouts of coblock on one machine; see benchmarks/restructuring.py."""
