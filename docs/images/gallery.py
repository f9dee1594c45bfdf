"""Draw the pictures of the gallery: run the code of the case studies and plot their models.

    python docs/images/gallery.py

It requires the development environment and takes about a minute.
"""

import os
import re
import tempfile
import warnings
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
from PIL import Image

HERE = Path(__file__).parent
CASES, PICTURES = HERE.parent / "cases", HERE / "gallery"
DPI, COLOURS = 110, 64  # of the pictures; few colours keep the files small


def run_case(name: str) -> dict[str, Any]:
    """Run the Python of a page in a new folder; return its variables."""
    text = (CASES / f"{name}.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {"__name__": name, "print": lambda *_: None}
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        os.chdir(folder)
        for block in re.findall(r"^```python\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE):
            exec(compile(block, name, "exec"), names)
        os.chdir(HERE)
    return names


def save(name: str, ax: Any) -> None:
    """Write the figure of these axes."""
    path = PICTURES / f"{name}.png"
    ax.figure.savefig(path, dpi=DPI, bbox_inches="tight")
    plt.close(ax.figure)
    with Image.open(path) as drawn:
        drawn.convert("RGB").quantize(COLOURS).save(path, optimize=True)


def draw_slice(model: Any, relation: str, place: int) -> Any:
    """Draw the blocks of a relation of three places for the cluster at ``place`` with most."""
    mean = model.relations_[relation].mean
    others = tuple(axis for axis in range(mean.ndim) if axis != place)
    table = mean.take(int(mean.sum(axis=others).argmax()), axis=place)
    figure, ax = plt.subplots(figsize=(4, 3.4))
    figure.colorbar(ax.imshow(table, cmap="Blues", vmin=0.0, vmax=1.0), label="probability")
    ax.set(xlabel="cluster of the object", ylabel="cluster of the subject")
    ax.set(xticks=range(table.shape[1]), yticks=range(table.shape[0]))
    return ax


def main() -> None:
    """Write all pictures."""
    PICTURES.mkdir(exist_ok=True)
    models = {name: run_case(name)["model"] for name in ("shop", "network", "survey")}
    for name, model in models.items():
        save(name, model.plot_blocks())
    save("sizes", models["shop"].plot_sizes())
    save("trace", models["shop"].plot_trace())
    save("knowledge-graph", draw_slice(run_case("knowledge-graph")["model"], "facts", 1))


if __name__ == "__main__":
    main()
