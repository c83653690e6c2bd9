# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What installation, continuous integration and the tools rely on."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
_PROGRAMS = ("bash", "cut", "dirname", "dpkg-query", "env", "grep", "head", "id", "sed", "sort")


def _script(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)


def test_rustups_compiler_is_found_by_a_shell_that_is_no_login_shell(tmp_path: Path) -> None:
    """Else Debian's own would be installed beside it, and `make sim` would not find any."""
    programs = tmp_path / "bin"
    for name in ("apt-get", "sudo"):
        _script(programs / name, "exit 7")
    for name in _PROGRAMS:
        if (found := shutil.which(name)) is not None:
            (programs / name).symlink_to(found)
    _script(tmp_path / ".cargo/bin/cargo", "echo cargo 99.0.0")
    environment = {"HOME": str(tmp_path), "PATH": str(programs)}
    done = subprocess.run(
        [ROOT / "setup/setup.sh", "debian"], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode in (0, 7) and "cargo-web" not in done.stdout + done.stderr
    rule = (ROOT / "Makefile").read_text() + "where:\n\t@command -v cargo\n"
    command = [str(shutil.which("make")), "-f", "-", "where"]
    done = subprocess.run(command, input=rule, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == str(tmp_path / ".cargo/bin/cargo"), done.stderr


def test_lists_that_change_and_change_back_are_installed_each_time(tmp_path: Path) -> None:
    """As between two branches: a stamp of the first visit had been taken for the packages of the second."""
    (tmp_path / "setup/mpi").mkdir(parents=True)
    shutil.copy(ROOT / "setup/setup.sh", tmp_path / "setup")
    (tmp_path / "Cargo.toml").write_text('rust-version = "1.0"\n')
    for name in ("apt.txt", "apt-test.txt", "uv.lock", "apt-cluster.txt"):
        (tmp_path / "setup" / name).touch()
    programs = tmp_path / "bin"
    for program in (programs / "cargo", tmp_path / ".venv/bin/python"):
        _script(program, "echo cargo 99.0.0")
    # Rust's target is there, and what else is optional cannot be had.
    _script(programs / "rustc", "echo .")
    _script(programs / "apt-get", "exit 7")
    for name in ("pip", "uv"):
        _script(tmp_path / ".venv/bin" / name, 'for last; do :; done; cat "$last" >>"$LOG"')
    environment = {"HOME": str(tmp_path), "PATH": f"{programs}:/usr/bin:/bin", "LOG": str(tmp_path / "log")}
    for purpose, version in (("test", 1), ("run", 2), ("run", 1), ("run", 1)):
        for name in ("requirements", "requirements-test"):
            (tmp_path / "setup" / f"{name}.lock").write_text(f"{name}=={version}\n")
        subprocess.run([tmp_path / "setup/setup.sh", purpose], env=environment, capture_output=True, check=True)
    installed = [line for line in (tmp_path / "log").read_text().splitlines() if line.startswith("requirements==")]
    assert installed == ["requirements==1", "requirements==2", "requirements==1"]


def test_intel_mpi_that_cannot_be_installed_is_an_error_of_who_asks_for_it(tmp_path: Path) -> None:
    """Else a script goes on without it; of what nobody asks for by name, only a message tells."""
    (tmp_path / "setup/mpi").mkdir(parents=True)
    shutil.copy(ROOT / "setup/setup.sh", tmp_path / "setup")
    (tmp_path / "Cargo.toml").write_text('rust-version = "1.0"\n')
    for name in ("apt.txt", "uv.lock", "requirements.lock", "requirements-test.lock"):
        (tmp_path / "setup" / name).touch()
    for program in (tmp_path / "bin/cargo", tmp_path / ".venv/bin/python", tmp_path / ".venv/bin/uv"):
        _script(program, "echo cargo 99.0.0")
    _script(tmp_path / ".venv/bin/pip", 'case "$*" in *--prefix*) exit 1 ;; esac')
    environment = {"HOME": str(tmp_path), "PATH": f"{tmp_path}/bin:/usr/bin:/bin"}
    for purpose, code in (("run", 0), ("intel", 3)):
        command = [tmp_path / "setup/setup.sh", purpose]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == code and "CANNOT be installed" in done.stderr, done.stderr


def test_gitlabs_gate_runs_again_in_a_clone_that_the_runner_kept(tmp_path: Path) -> None:
    job = yaml.safe_load((ROOT / "docs/ci/gitlab.yml").read_text())["performance"]
    commands = [line for line in job["script"] if line.startswith("git worktree")]
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@localhost", "-C", str(tmp_path)]
    for command in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "first"]):
        subprocess.run([*git, *command], check=True)
    for _ in range(2):
        # What the runner does before a job, unless its strategy is to clone.
        subprocess.run([*git, "clean", "-ffdxq"], check=True)
        for command in commands:
            run = command.replace('"$CI_MERGE_REQUEST_DIFF_BASE_SHA"', "HEAD")
            subprocess.run(["sh", "-ec", run], cwd=tmp_path, check=True, capture_output=True)
        assert (tmp_path / "old/.git").is_file()


@pytest.mark.parametrize(
    "command", ["fuzz.sh ten", "fuzz.sh 0", "fuzz.sh 10 typo", "cross.sh arm64 arm32", "sanitize.sh memory"]
)
def test_a_wrong_argument_of_a_tool_is_told_before_anything_is_built(command: str, tmp_path: Path) -> None:
    name, *arguments = command.split()
    environment = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    for program in ("cargo", "rustc"):
        _script(tmp_path / ".cargo/bin" / program, "exit 7")
    done = subprocess.run(
        [ROOT / "tools" / name, *arguments], env=environment, capture_output=True, text=True, check=False, timeout=20
    )
    assert done.returncode == 2 and f"'{arguments[-1]}'" in done.stderr and not done.stdout


def test_the_package_is_installed_although_the_broker_does_not_start_again(tmp_path: Path) -> None:
    """As with a policy that the new version refuses: the package would have stayed half installed."""
    (tmp_path / "system").mkdir()
    _script(tmp_path / "bin/systemctl", 'echo "$*" >>"$LOG"; [ "$1" != try-restart ]')
    _script(tmp_path / "bin/getent", "exit 0")
    # The script of a machine that systemd runs.
    script = (ROOT / "setup/packages/debian/postinst").read_text().replace("/run/systemd/system", f"{tmp_path}/system")
    environment = {"PATH": f"{tmp_path}/bin:/usr/bin:/bin", "LOG": str(tmp_path / "log")}
    command = ["sh", "-s", "configure"]
    done = subprocess.run(command, input=script, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "systemctl status barewire-broker" in done.stderr
    assert (tmp_path / "log").read_text().splitlines() == ["daemon-reload", "try-restart barewire-broker.service"]


@pytest.mark.parametrize("tool", ["survive", "soak", "starts"])
def test_a_library_that_is_not_there_is_told_before_anything_is_run(tool: str, tmp_path: Path) -> None:
    """One of several was left out without a word, and one alone was a traceback."""
    output = ["--output", str(tmp_path / "records")] if tool == "soak" else []
    command = [sys.executable, ROOT / "tools" / f"{tool}.py", *output, "--library", "openmpi,typo"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode in (2, 3) and done.stderr.startswith(f"{tool}: ") and done.stderr.count("\n") == 1
