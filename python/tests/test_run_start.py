# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`barewire run` starts quickly: it imports only what a launch needs, and parses its arguments like typer.

Imports dominate the start, so they are bounded by name, without a clock.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from barewire.cli import run as cli_run
from barewire.cli.commands import app
from barewire.cli.run_arguments import OPTIONS, Request, parse
from barewire.mpi.libraries import identify
from barewire.mpi.version_cache import cached_version, store_version

ROOT = Path(__file__).resolve().parents[2]
# Each takes from a tenth of a second to several seconds, or belongs to other commands.
HEAVY = ("typer", "pydantic", "rich", "networkx", "numpy", "scipy", "polars", "plotly", "jinja2", "os_ken", "aiohttp")


def modules_of(*arguments: str) -> set[str]:
    """Run the command line; return the names of all imported modules."""
    command = [sys.executable, "-X", "importtime", "-m", "barewire", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
    environment.pop("BAREWIRE_SDN", None)
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=60)
    lines = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
    assert lines
    return {line.rpartition("|")[2].strip() for line in lines}


def found_heavy(modules: set[str]) -> set[str]:
    return {name.partition(".")[0] for name in modules} & set(HEAVY)


def modules_after(imports: str) -> set[str]:
    """Import modules in a fresh interpreter; return the names of all modules that it then has."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
    command = [sys.executable, "-c", f"import sys; {imports}; print(*sys.modules)"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment, timeout=60)
    return set(done.stdout.split())


def test_a_launch_on_this_machine_imports_no_heavy_package_and_no_lab() -> None:
    modules = modules_after("from barewire.cli import launch")
    assert "barewire.mpi.start" in modules
    assert not found_heavy(modules)
    unwanted = ("barewire.lab", "barewire.sdn", "barewire.topology", "barewire.mpi.explain", "http", "pyroute2")
    assert not [name for name in modules if name.startswith(unwanted)]


def test_a_launch_in_a_lab_imports_no_heavy_package() -> None:
    modules = modules_after("from barewire.cli import launch, labs")
    assert "barewire.lab.cluster" in modules
    assert not found_heavy(modules)


def test_plain_arguments_are_parsed_without_typer() -> None:
    # `cat` is linked to no MPI library and no library is named: the launch rejects the run.
    quick = modules_of("run", "-n", "2", "--library", str(ROOT / "docs"), "--", "cat")
    assert "barewire.cli.launch" in quick and "typer" not in quick
    # The check can fail: help uses typer.
    assert "typer" in found_heavy(modules_of("run", "--help"))


PLAIN = (
    ["-n", "2", "--", "./program", "-n", "3"],
    ["-n", "2", "./program", "--", "-x"],
    ["--ranks", "4", "--lab", "pair", "--mtu", "9000", "--rate=1gbit", "--offloads", "on", "--loss", "1%", "prog"],
    ["-n", "1", "--explain", "--dry-run", "--json", "--fabric=tcp", "--library", "mpich-5", "p"],
    ["-n", "2", "-n", "3", "--hosts", "a:4,b", "--interface", "eth1", "--link", "xdp", "--wait", "spin", "p"],
    ["-n", "2", "--hostfile", "hosts.txt", "--sdn", "unix:/a", "--sdn-token", "t", "--progress", "auto", "p"],
    ["-n", "2", "--auth", "encrypt", "p"],
)
NOT_PLAIN = (
    [],
    ["--help"],
    ["-n", "2"],
    ["-n", "2", "--"],
    ["./program"],
    ["-n", "0", "p"],
    ["-n", "two", "p"],
    ["-n2", "p"],
    ["-n=2", "p"],
    ["-n", "2", "--lab"],
    ["-n", "2", "--lab", "--dry-run", "p"],
    ["-n", "2", "--unknown", "p"],
    ["-n", "2", "--offloads", "maybe", "p"],
    ["-n", "2", "--explain=yes", "p"],
)


@pytest.mark.parametrize("arguments", PLAIN, ids=" ".join)
def test_plain_arguments_mean_the_same_to_typer(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Request] = []

    def taken(request: Request) -> int:
        seen.append(request)
        return 0

    monkeypatch.setattr(cli_run, "launch", taken)
    done = CliRunner().invoke(app, ["run", *arguments])
    assert done.exit_code == 0, done.output
    assert [parse(arguments)] == seen


@pytest.mark.parametrize("arguments", NOT_PLAIN, ids=" ".join)
def test_other_arguments_are_left_to_typer(arguments: list[str]) -> None:
    assert parse(arguments) is None


def test_every_option_that_typer_declares_is_known() -> None:
    group: Any = typer.main.get_command(app)
    run = group.get_command(None, "run")
    declared = {name for parameter in run.params if parameter.param_type_name == "option" for name in parameter.opts}
    assert declared - {"--help", "--version"} == set(OPTIONS)


def test_a_library_is_loaded_once_until_its_file_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    file = tmp_path / "libmpi.so.40"
    file.write_bytes(b"first")
    assert cached_version(file) is None
    store_version(file, "Open MPI v5.0.11, package: any")
    assert cached_version(file) == "Open MPI v5.0.11, package: any"
    # It cannot be loaded, so this answer is the cached one.
    assert str(identify(file)) == "Open MPI 5.0.11"
    file.write_bytes(b"second")
    assert cached_version(file) is None
    assert identify(file) is None


@pytest.mark.parametrize("content", ["", "[]", "{", '{"FILE": 3}', '{"FILE": [[], 1]}', '{"FILE": ["a", "b", "c"]}'])
def test_a_broken_cache_is_ignored(content: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    file = tmp_path / "libmpi.so.40"
    file.write_bytes(b"first")
    cache = tmp_path / "barewire" / "mpi-libraries.json"
    cache.parent.mkdir()
    cache.write_text(content.replace("FILE", str(file)))
    assert cached_version(file) is None
    store_version(file, "version")
    assert cached_version(file) == "version"
    # A cache that can be neither read nor written is ignored.
    monkeypatch.setenv("XDG_CACHE_HOME", str(file))
    store_version(file, "version")
    assert cached_version(file) is None
