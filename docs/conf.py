"""How the documentation is built: ``make docs``. Nothing is fetched from the network."""

import sys
from pathlib import Path

import typer
from sphinx.application import Sphinx

sys.path.insert(0, str(Path(__file__).parent))

from commands import page

from coblock import __version__
from coblock.ui.cli import app as command_line

project = "coblock"
author = "The coblock developers"
copyright = author
release = version = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build", "images"]
myst_heading_anchors = 3
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the docstrings tell
napoleon_google_docstring = False
napoleon_use_ivar = True

html_theme = "furo"
html_title = f"coblock {release}"
html_copy_source = False
html_show_sphinx = False


def write_commands(app: Sphinx) -> None:
    """Write the page of the commands from their own help."""
    group = typer.main.get_command(command_line)
    path = Path(app.srcdir) / "reference" / "commands.md"
    text = page(group)
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


def setup(app: Sphinx) -> None:
    """Connect what is made anew at each build."""
    app.connect("builder-inited", write_commands)
