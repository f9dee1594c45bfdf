"""Configuration of the documentation (``make docs``); no network is needed to build or read it."""

import sys
from pathlib import Path

import typer
from docutils import nodes
from docutils.utils.math import MathError
from sphinx.application import Sphinx
from sphinx.errors import SphinxError
from sphinx.writers.html5 import HTML5Translator

sys.path.insert(0, str(Path(__file__).parent))

from commands import page
from formulas import to_mathml

from coblock import __version__
from coblock.ui.cli import app as command_line

project = "coblock"
author = "The coblock developers"
copyright = author
release = version = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build", "images"]
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the docstrings contain the types
napoleon_google_docstring = False
napoleon_use_ivar = False  # as fields of a list, names would lose their last underscore

html_theme = "furo"
html_title = f"coblock {release}"
html_copy_source = False
html_show_sphinx = False
html_static_path = ["static"]
html_css_files = ["math.css"]
html_math_renderer = "mathml"  # MathJax, the default, is loaded from a server


def write_commands(app: Sphinx) -> None:
    """Write the page of commands from their help texts."""
    group = typer.main.get_command(command_line)
    path = Path(app.srcdir) / "reference" / "commands.md"
    text = page(group)
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


def write_formula(translator: HTML5Translator, node: nodes.math | nodes.math_block) -> None:
    """Write a formula into a page."""
    try:
        text = to_mathml(node.astext(), block=isinstance(node, nodes.math_block))
    except MathError as error:
        msg = f"{node.source}:{node.line}: formula {node.astext()!r}: {error}"
        raise SphinxError(msg) from error
    translator.body.append(text)
    raise nodes.SkipNode


def setup(app: Sphinx) -> None:
    """Register the generated page and the renderer of formulas."""
    app.connect("builder-inited", write_commands)
    app.add_html_math_renderer("mathml", (write_formula, None), (write_formula, None))
