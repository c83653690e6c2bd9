# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Where native files are, in a checkout and in a package; and that all parts of the project state one version."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import barewire
from barewire import installed
from barewire.cli import version
from barewire.measure.environment import describe_machine

ROOT = Path(__file__).resolve().parents[2]
_PRINT = """
import json
from barewire import installed
names = ("PROGRAMS", "PROVIDER", "MPI_SOURCES")
print(json.dumps({name: str(getattr(installed, name)) for name in names}
    | {"built": str(installed.built_mpi()), "commit": installed.commit(), "sources": installed.sources_version()}
    | {"libraries": str(installed.MPI_LIBRARIES[0])}))
"""


def test_a_checkout_has_native_files_in_its_own_folders() -> None:
    assert not installed.IS_PACKAGE
    assert installed.PROGRAMS == ROOT / "target" / "release"
    assert installed.PROVIDER == installed.PROGRAMS / "libfabric"
    assert (installed.MPI_SOURCES / "pingpong.c").is_file()
    assert installed.built_mpi() == ROOT / "target" / "mpi"


def test_a_package_has_them_in_its_native_folder_and_builds_in_the_users_cache(tmp_path: Path) -> None:
    """In another place, with a folder `native`; providers are elsewhere, as in Debian's package."""
    package = tmp_path / "site" / "barewire"
    native, providers = package / "native", tmp_path / "libfabric"
    native.mkdir(parents=True)
    providers.mkdir()
    for name in ("__init__.py", "installed.py"):
        shutil.copy(Path(installed.__file__).with_name(name), package)
    (native / "libfabric").symlink_to(providers)
    (native / "commit").write_text("0123456789ab\n")
    environment = os.environ | {"PYTHONPATH": str(package.parent), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    command = [sys.executable, "-c", _PRINT]
    found = json.loads(subprocess.run(command, check=True, capture_output=True, env=environment).stdout)
    assert found == {
        "PROGRAMS": str(native),
        # Without links, as /proc names a mapped file.
        "PROVIDER": str(providers),
        "MPI_SOURCES": str(native / "mpi"),
        "built": str(tmp_path / "cache" / "barewire" / "mpi"),
        "commit": "0123456789ab",
        "sources": "0123456789ab",
        "libraries": sys.prefix,
    }


def test_the_version_names_the_missing_provider_and_the_fix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installed, "PROVIDER", tmp_path)
    first, second, third = version.text().splitlines()
    assert first == f"barewire {barewire.__version__}"
    assert second.startswith("commit ")
    assert third.startswith("provider cannot be read: ") and third.endswith("; run `make build`")


def test_all_parts_state_one_version() -> None:
    cargo = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
    changes = re.findall(r"^## (\S+) \(\d{4}-\d\d-\d\d\)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    conda = re.search(r'^  version: "(.*)"', (ROOT / "setup/packages/conda/recipe.yaml").read_text(), re.MULTILINE)
    assert conda is not None
    assert barewire.__version__ == cargo == changes[0] == conda[1]
    assert "version" in project["project"]["dynamic"], "the wheel takes it from the module"
    assert project["tool"]["hatch"]["version"]["path"] == "python/barewire/__init__.py"


def test_what_is_measured_names_the_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installed, "commit", lambda: "0123456789ab-dirty")
    assert describe_machine()["versions"]["barewire_commit"] == "0123456789ab-dirty"
