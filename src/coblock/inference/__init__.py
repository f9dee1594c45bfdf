"""The six inference methods, each a stream of sweeps."""
