"""Run the command line as ``python -m coblock``."""

from coblock.ui.cli import app

if __name__ == "__main__":
    app()
