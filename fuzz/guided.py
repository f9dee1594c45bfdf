"""Guide mutations by coverage with atheris: readers, model files, checkpoints, descriptions.

    python fuzz/guided.py --target models -max_total_time=60

Options that begin with one dash are those of libFuzzer. Without the package atheris, which has no
wheels for some systems, a sentence says so and the exit code is 0.
"""

import argparse
import contextlib
import random
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

try:
    import atheris
except ImportError:
    print("atheris is not installed here; the other fuzzers do not need it.")
    sys.exit(0)

import coblock.inference.fit  # kernels are compiled as they are
import coblock.inference.multi_fit
import coblock.model.likelihoods.categorical
import coblock.model.likelihoods.normal
import coblock.model.likelihoods.poisson  # noqa: F401

COMPILED = ["coblock.io.readers.names"]  # Numba cannot compile instrumented functions
with atheris.instrument_imports(include=["coblock.io", "coblock.loading"], exclude=COMPILED):
    from targets import TARGETS

SECONDS = 90  # time limit of one input; a kernel may be compiled for it on a slow machine


def main() -> None:
    """Read inputs until libFuzzer ends; an error that is not documented is a finding."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", choices=sorted(TARGETS), default="models")
    chosen, options = parser.parse_known_args()
    target = TARGETS[chosen.target]()
    with tempfile.TemporaryDirectory(prefix="coblock-fuzz-") as place:
        corpus = Path(place) / "corpus"
        corpus.mkdir()
        for number, sample in enumerate(target.samples):
            kind = bytes([number])  # the first byte selects the name of the file
            (corpus / str(number)).write_bytes(kind + sample.content)
            path = Path(place) / sample.name
            path.write_bytes(sample.content)
            with contextlib.suppress(*target.errors):
                target.read(path, random.Random(0))  # compiles the kernels, before the time limit

        def read(data: bytes) -> None:
            sample = target.samples[data[0] % len(target.samples) if data else 0]
            path = Path(place) / sample.name
            path.write_bytes(data[1:])
            try:
                target.read(path, random.Random(len(data)))
            except target.errors:
                return

        found = f"-artifact_prefix={Path(__file__).parent / 'found'}/"
        atheris.Setup([sys.argv[0], *options, f"-timeout={SECONDS}", found, str(corpus)], read)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
