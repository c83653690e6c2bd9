# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The examples of docs/ci, run as far as they can be: their commands in order, with the real `barewire compare`.

Stand-ins take the place of what needs a network, a lab or minutes: the checkouts, `make`, `barewire bench`, `apt-get`,
`gh` and `curl`. Each writes its arguments into a log. Actions, images, rules and artifacts are not run.
"""

import os
import re
import subprocess
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml
from conftest import BAREWIRE, ROOT
from synthetic import synthetic_run

EXAMPLES = ROOT / "docs" / "ci"
SMALL: dict[str, Any] = {"launches": 10, "samples_per_launch": 20, "tests": ("pingpong",), "sizes": (64, 1400)}
# Parses the options of `bench` as the real command does, and copies a prepared run instead of measuring.
BENCH = f"""#!/bin/sh
echo "barewire $*" >>"$LOG"
[ "$1" = bench ] || exec {BAREWIRE} "$@"
case $* in *old) {BAREWIRE} "$@" --help >/dev/null || exit ;; esac
while [ "$1" != --output ]; do shift; done
mkdir -p "$(dirname "$2")" && cp -r "$PREPARED/$(basename "$2")" "$2"
"""
RECORD = """#!/bin/sh
echo "${0##*/} $*" >>"$LOG"
"""
# Values of the expressions in the workflow.
EXPRESSIONS = {
    "github.token": "secret",
    "github.repository": "owner/name",
    "github.event.pull_request.number": "7",
    "github.event.pull_request.base.sha": "base",
}


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs to choose from: an old one, one that is equal, one with slower raw frames."""
    root = tmp_path_factory.mktemp("prepared")
    synthetic_run(root / "old", seed=1, **SMALL)
    synthetic_run(root / "same", seed=2, slowdown=1.2, **SMALL)
    synthetic_run(root / "slower", seed=3, slower={"raw": 1.12}, **SMALL)
    return root


@pytest.fixture
def site(tmp_path: Path, prepared: Path, request: pytest.FixtureRequest) -> Path:
    """A folder with stand-ins; the parameter is the run that the new version is to have."""
    (tmp_path / "prepared").mkdir()
    (tmp_path / "prepared" / "old").symlink_to(prepared / "old")
    (tmp_path / "prepared" / "new").symlink_to(prepared / request.param)
    for name in ("make", "apt-get", "gh", "curl"):
        _script(tmp_path / "stand-ins" / name, RECORD)
    (tmp_path / "work").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("site", "fails"),
    [("same", False), pytest.param("slower", True, marks=pytest.mark.matrix)],
    indirect=["site"],
)
def test_the_workflow_for_github_fails_when_something_is_slower(site: Path, fails: bool) -> None:
    work = site / "work"
    (job,) = yaml.safe_load((EXAMPLES / "github.yml").read_text())["jobs"].values()
    failed = []
    for step in job["steps"]:
        assert ("run" in step) != ("uses" in step)
        if failed and "cancelled()" not in step.get("if", ""):
            continue
        if "uses" in step:
            _action(step, work)
            continue
        environment = {name: _evaluated(value) for name, value in step.get("env", {}).items()}
        done = _run(site, step["run"], work, GITHUB_STEP_SUMMARY=str(site / "summary"), **environment)
        if done.returncode:
            failed.append((step["name"], done))
    assert [name for name, _ in failed] == (["Compare"] if fails else [])
    _check_results(work, fails=fails)
    assert (site / "summary").read_text() == (work / "gate.md").read_text()
    log = (site / "log").read_text().splitlines()
    assert log.index("make -C old build") < log.index("make -C new build")
    assert log[-1] == "gh pr comment 7 --edit-last --body-file gate.md"


@pytest.mark.parametrize("site", ["slower"], indirect=True)
def test_the_job_for_gitlab_fails_when_something_is_slower(site: Path) -> None:
    work = site / "work"
    job = yaml.safe_load((EXAMPLES / "gitlab.yml").read_text())["performance"]
    _script(work / "bin" / "barewire", BENCH)
    for command in (
        ["init", "--quiet"],
        ["add", "."],
        ["-c", "user.name=x", "-c", "user.email=x@example.org", "commit", "--quiet", "--message", "base"],
    ):
        subprocess.run(["git", *command], cwd=work, check=True)
    variables = {
        "CI_MERGE_REQUEST_DIFF_BASE_SHA": "HEAD",
        "CI_API_V4_URL": "https://example.org/api/v4",
        "CI_PROJECT_ID": "3",
        "CI_MERGE_REQUEST_IID": "7",
        "GATE_TOKEN": "secret",
    }
    done = _run(site, "\n".join([*job["before_script"], *job["script"]]), work, **variables)
    assert done.returncode == 1, done.stderr
    assert _run(site, "\n".join(job["after_script"]), work, **variables).returncode == 0
    _check_results(work, fails=True)
    assert [work / path for path in job["artifacts"]["paths"] if not (work / path).exists()] == []
    assert (work / job["artifacts"]["reports"]["junit"]).exists()
    log = (site / "log").read_text().splitlines()
    assert "make -C old build" in log and "make build" in log
    assert log[-1].endswith("body@gate.md https://example.org/api/v4/projects/3/merge_requests/7/notes")


def _check_results(work: Path, *, fails: bool) -> None:
    """The documents say what the exit code says; the machine, 1.2 times slower in one case, is not the subject."""
    suite = ElementTree.parse(work / "gate.xml").getroot().find("testsuite")
    assert suite is not None
    assert (suite.get("tests"), suite.get("failures")) == ("6", "2" if fails else "0")
    assert (work / "gate.md").read_text().startswith("### Performance: ❌" if fails else "### Performance: ✅")


def _action(step: dict[str, Any], work: Path) -> None:
    """What an action leaves for later steps: a checkout; an upload's files must exist."""
    name, options = step["uses"].partition("@")[0], step["with"]
    if name == "actions/checkout":
        assert options.get("ref") is None or _evaluated(options["ref"]) == "base"
        _script(work / options["path"] / "bin" / "barewire", BENCH)
    else:
        assert name == "actions/upload-artifact"
        assert all((work / path).exists() for path in options["path"].split())


def _evaluated(text: str) -> str:
    return re.sub(r"\$\{\{ (.*?) \}\}", lambda match: EXPRESSIONS[match[1]], text)


def _run(site: Path, commands: str, work: Path, **variables: str) -> "subprocess.CompletedProcess[str]":
    """Run commands as both services do: by a shell that ends with the first failure."""
    environment = {
        **os.environ,
        **variables,
        "PATH": f"{site / 'stand-ins'}:{os.environ['PATH']}",
        "LOG": str(site / "log"),
        "PREPARED": str(site / "prepared"),
    }
    return subprocess.run(
        ["sh", "-e", "-c", commands],
        cwd=work,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def _script(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
