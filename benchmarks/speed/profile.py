"""Profile a default fit: python -m speed.profile [RELATION]."""

import cProfile
import pstats
import sys
from time import process_time

from data import load

from coblock import IRM


def main() -> None:
    """Fit twice and profile the second fit; the first one compiles the kernels."""
    X = load(sys.argv[1] if len(sys.argv) > 1 else "lastfm_userxuser")
    IRM(random_state=0, max_iter=10, callback=lambda sweep: sweep.sweep == 10).fit(X)
    profile = cProfile.Profile(process_time)
    profile.runcall(IRM(random_state=0).fit, X)
    pstats.Stats(profile).strip_dirs().sort_stats("tottime").print_stats(20)


if __name__ == "__main__":
    main()
