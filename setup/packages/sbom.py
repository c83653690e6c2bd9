# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Prints a software bill of materials (CycloneDX 1.6): the crates in the native files, and the Python packages.

sbom.py CRATE… — the crates whose dependencies count, without those of their builds and tests.
"""

import json
import re
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
_TARGET = "x86_64-unknown-linux-gnu"
_LOCKED = re.compile(r"^([a-z0-9._-]+)==([^\s;\\]+)", re.MULTILINE)


def crates(programs: list[str]) -> Iterator[dict[str, Any]]:
    """Yield a component for each crate that is linked into one of the programs."""
    command = ["cargo", "metadata", "--locked", "--format-version", "1", "--filter-platform", _TARGET]
    metadata = json.loads(subprocess.run(command, capture_output=True, check=True, cwd=ROOT).stdout)
    packages = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    waiting = [id_ for id_, package in packages.items() if package["name"] in programs]
    linked: set[str] = set()
    while waiting:
        if (id_ := waiting.pop()) in linked:
            continue
        linked.add(id_)
        for dependency in nodes[id_]["deps"]:
            if any(kind["kind"] is None for kind in dependency["dep_kinds"]):
                waiting.append(dependency["pkg"])
    for package in sorted((packages[id_] for id_ in linked), key=lambda package: (package["name"], package["version"])):
        # Parts of Barewire itself come from no registry.
        if package["source"] is not None:
            yield component("cargo", package["name"], package["version"], package["license"])


def wheels() -> Iterator[dict[str, Any]]:
    """Yield a component for each pinned Python package."""
    for name, version in _LOCKED.findall((ROOT / "setup" / "requirements.lock").read_text()):
        yield component("pypi", name, version, None)


def component(kind: str, name: str, version: str, licence: str | None) -> dict[str, Any]:
    """Return one component."""
    purl = f"pkg:{kind}/{name}@{version}"
    described = {"type": "library", "name": name, "version": version, "purl": purl, "bom-ref": purl}
    # Crates published before SPDX expressions were required write MIT/Apache-2.0.
    return described | ({"licenses": [{"expression": licence.replace("/", " OR ")}]} if licence else {})


def document(programs: list[str]) -> dict[str, Any]:
    """Return the whole document; equal sources give an equal one."""
    found = re.search(r'__version__ = "(.*)"', (ROOT / "python" / "barewire" / "__init__.py").read_text())
    assert found is not None, "the package states its version"
    components = [*crates(programs), *wheels()]
    serial = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps([found[1], components]))
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
        "metadata": {"component": {"type": "application", "name": "barewire", "version": found[1]}},
        "components": components,
    }


print(json.dumps(document(sys.argv[1:]), indent=1))
