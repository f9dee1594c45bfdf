"""``python -m coblock.cli`` is ``coblock``."""

from coblock.cli import app

if __name__ == "__main__":
    app()
