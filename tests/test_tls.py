"""The example of TLS in docs/howto/cluster.md, over loopback."""

import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner

pytest.importorskip("distributed")

from coblock import load
from coblock.distributed import ClusterError, release
from coblock.distributed.client import connect
from coblock.ui.cli import app

PAGE = Path(__file__).parent.parent / "docs" / "howto" / "cluster.md"
pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")


def example() -> list[str]:
    section = PAGE.read_text(encoding="utf-8").split("## Encrypt connections")[1].split("\n## ")[0]
    return re.findall(r"```text\n(.*?)```", section, flags=re.DOTALL)


def free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


@pytest.fixture
def place(tmp_path, monkeypatch) -> Path:
    """Return a folder with certificates and edges, which is the working directory."""
    monkeypatch.chdir(tmp_path)
    subprocess.run(["sh", "-e", "-c", example()[0]], check=True, capture_output=True)
    pairs = [(f"u{i}", f"v{j}") for i in range(24) for j in range(18) if i % 2 == j % 2]
    pl.DataFrame(pairs, schema=["u", "v"], orient="row").write_parquet("edges.parquet")
    return tmp_path


def start(line: str) -> subprocess.Popen:
    """Start a line of the example that begins with ``dask``, with the same interpreter."""
    _, command, *options = line.split()
    if command == "scheduler":
        options.append("--no-dashboard")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    module = f"distributed.cli.dask_{command}"
    return subprocess.Popen([sys.executable, "-m", module, *options], env=environment, **quiet)


def test_the_example_of_the_page(place):
    _, commands, fit, python = (
        text.replace("8786", port) for port in [free_port()] for text in example()
    )
    running = [start(line) for line in commands.splitlines()]
    try:
        arguments = fit.replace("/path/to/edges", str(place / "edges.parquet")).split()[1:]
        ran = CliRunner().invoke(app, [*arguments, "--tol", "0", "--max-iter", "2", "--no-refine"])
        assert ran.exit_code == 0, ran.output
        assert load("result/model.safetensors").n_iter_ == 2
        names: dict = {}
        python = python.replace("random_state=0", "random_state=0, max_iter=2, refine=False")
        exec(python.replace("/path/to/edges", str(place / "edges.parquet")), names)
        assert names["model"].n_iter_ == 2
        release(names["model"])
        address = names["engine"].client
        for client, security in ((address, None), (address.replace("tls", "tcp"), None)):
            with pytest.raises(ClusterError, match="needs certificates: security="):
                connect(client, security, timeout=2.0)
    finally:
        for process in reversed(running):
            process.terminate()
        for process in running:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()


ALL = ["--tls-ca-file", "none.pem", "--tls-cert", "c.pem", "--tls-key", "k.pem"]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["--tls-cert", "cert.pem"], "are needed together, with --scheduler"),
        (["--scheduler", "tls://x", "--tls-key", "key.pem"], "are needed together"),
        (["--scheduler", "tls://x", *ALL], "There is no file none.pem"),
    ],
)
def test_files_are_needed_together(tmp_path, monkeypatch, given, words):
    monkeypatch.chdir(tmp_path)
    ran = CliRunner().invoke(app, ["fit", "edges.parquet", "--out", "o", *given])
    assert ran.exit_code == 2
    assert words in ran.stderr
    assert not Path("o").exists()
