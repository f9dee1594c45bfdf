"""The package as a release: contents of the sdist, versions, workflows, sources of data."""

import re
import subprocess
import tarfile
from pathlib import Path

import pytest
import yaml
from hatchling.builders.sdist import SdistBuilder

import coblock

ROOT = Path(__file__).parent.parent
WORKFLOWS = ROOT / ".github" / "workflows"


def text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def test_the_sdist_is_complete(tmp_path):
    """It has every file that git tracks, except for the settings of the repository."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a repository")
    with tarfile.open(next(SdistBuilder(str(ROOT)).build(directory=str(tmp_path)))) as archive:
        shipped = {name.split("/", 1)[1] for name in archive.getnames()}
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    missing = set(listed.stdout.splitlines()) - shipped
    assert all(name.startswith((".ci/", ".editorconfig")) for name in missing), missing


def test_versions_agree():
    newest = re.search(r"^## \[(\d[^]]*)\] - \d{4}-\d\d-\d\d$", text("CHANGELOG.md"), flags=re.M)
    assert newest[1] == coblock.__version__
    assert f"version: {coblock.__version__}\n" in text("CITATION.cff")


def test_the_readme_has_no_relative_pictures():
    assert not re.search(r"!\[[^]]*\]\((?!https://)", text("README.md"))


@pytest.mark.parametrize("name", ["tests.yml", "release.yml"])
def test_workflows_call_targets_that_exist(name):
    workflow = yaml.safe_load((WORKFLOWS / name).read_text(encoding="utf-8"))
    commands = [
        step.get("run", "") for job in workflow["jobs"].values() for step in job.get("steps", [])
    ]
    targets = set(re.findall(r"^([a-z]+):", text("Makefile"), flags=re.M))
    called = set(re.findall(r"make ([a-z]+)", "\n".join(commands)))
    assert called <= targets
    assert workflow["permissions"] == {"contents": "read"}


def test_all_systems_and_versions_are_tested():
    jobs = yaml.safe_load((WORKFLOWS / "tests.yml").read_text(encoding="utf-8"))["jobs"]
    matrix = jobs["test"]["strategy"]["matrix"]
    assert {system.split("-")[0] for system in matrix["os"]} == {"ubuntu", "macos", "windows"}
    classified = re.findall(r"Python :: (3\.\d+)", text("pyproject.toml"))
    assert matrix["python"] == classified
    assert {"lint", "dependencies", "kernels", "fuzz", "docs", "package"} <= set(jobs)


def test_dependencies_package_and_publishing_are_in_the_workflows():
    jobs = yaml.safe_load((WORKFLOWS / "tests.yml").read_text(encoding="utf-8"))["jobs"]
    matrix = jobs["dependencies"]["strategy"]["matrix"]["include"]
    assert {entry["resolution"] for entry in matrix} == {"lowest-direct", "highest"}
    commands = {
        name: "\n".join(step.get("run", "") for step in job["steps"]) for name, job in jobs.items()
    }
    for words in ("make dist", "make audit", "install dist/coblock-*.tar.gz", "tests pass"):
        named = [step.get("name", "") for step in jobs["package"]["steps"]]
        assert words in commands["package"] or any(words in name for name in named)
    assert {"make boundscheck", "make nojit"} <= set(commands["kernels"].splitlines())
    release = yaml.safe_load((WORKFLOWS / "release.yml").read_text(encoding="utf-8"))["jobs"]
    assert release["publish"]["needs"] == "tests"
    assert release["publish"]["permissions"] == {"contents": "read", "id-token": "write"}
    used = [step.get("uses", "") for step in release["publish"]["steps"]]
    assert any(name.startswith("pypa/gh-action-pypi-publish@") for name in used)
    given = [step.get("with", {}) for step in release["publish"]["steps"]]
    assert not any("password" in each for each in given)


def test_make_fuzz_runs_every_target():
    targets = set(re.search(r"^TARGETS := (.*)$", text("Makefile"), flags=re.M)[1].split())
    assert targets | {"readers"} == set(
        re.findall(r'^    "(\w+)": \w+,$', text("fuzz/targets.py"), re.M)
    )
    for script in ("run", "processes", "cluster", "empty_objects", "guided"):
        assert f"fuzz/{script}.py" in text("Makefile")


def test_the_sources_of_bundled_data_are_named():
    sources = text("src/coblock/datasets/SOURCES.md")
    for path in (ROOT / "src" / "coblock" / "datasets").glob("*.csv"):
        assert f"`{path.name}`" in sources
