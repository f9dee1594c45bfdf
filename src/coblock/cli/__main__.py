"""``python -m coblock.cli`` is ``coblock``."""

from coblock.cli import app

app()
