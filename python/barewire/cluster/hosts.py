# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The hosts of a cluster and their interfaces, as cluster.toml has them."""

import json
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from barewire.errors import WrongUse
from barewire.mpi.placement import is_host_name
from barewire.results.store import write_atomically

_HEAD = """\
# Written by `barewire cluster init`; read by `barewire cluster check`.
# speed_mbit_s and mtu are what check expects of each host: correct them where init found a faulty link.
# interfaces lists all that the host has, in case another one shall be measured.
"""


@dataclass(frozen=True)
class ClusterHost:
    """A host, the interface to measure, the speed and MTU expected of it (None if unknown), and all its interfaces."""

    name: str
    interface: str
    speed_mbit_s: int | None = None
    mtu: int | None = None
    interfaces: tuple[str, ...] = ()


def write_cluster_file(path: Path, hosts: Sequence[ClusterHost], *, force: bool) -> None:
    """Write the hosts; WrongUse if the file exists and `force` is not set, or if it cannot be written."""
    if path.exists() and not force:
        raise WrongUse(f"{path} exists already; --force overwrites it")
    try:
        write_atomically(path, (_HEAD + "".join(_table(host) for host in hosts)).encode())
    except OSError as error:
        raise WrongUse(f"cannot write {path}: {error.strerror or error}") from error


def read_cluster_file(path: Path) -> list[ClusterHost]:
    """Read the hosts of a file; WrongUse that names the mistake."""
    try:
        document = tomllib.loads(path.read_text())
    except FileNotFoundError:
        raise WrongUse(f"no {path}: write it with `barewire cluster init --hosts a,b,c`, or give --hosts") from None
    except (OSError, ValueError, RecursionError) as error:  # ValueError also of a number of thousands of digits
        raise WrongUse(f"{path} cannot be read: {error}") from error
    tables = document.get("hosts")
    if not isinstance(tables, list) or not tables:
        raise WrongUse(f'{path} names no hosts; each is a table [[hosts]] with name = "a" and interface = "eth0"')
    hosts = [_host(path, table) for table in tables]
    names = [host.name for host in hosts]
    if len(set(names)) != len(names):
        raise WrongUse(f"{path} names {max(names, key=names.count)} twice")
    return hosts


def _table(host: ClusterHost) -> str:
    # A JSON string or list of strings is one of TOML.
    lines = ["", "[[hosts]]", f"name = {json.dumps(host.name)}", f"interface = {json.dumps(host.interface)}"]
    lines += [f"speed_mbit_s = {host.speed_mbit_s}"] * (host.speed_mbit_s is not None)
    lines += [f"mtu = {host.mtu}"] * (host.mtu is not None)
    lines += [f"interfaces = {json.dumps(list(host.interfaces))}"] * bool(host.interfaces)
    return "\n".join(lines) + "\n"


def _host(path: Path, table: object) -> ClusterHost:
    if not isinstance(table, dict):
        raise WrongUse(f"{path}: hosts must be tables [[hosts]]")
    name = table.get("name")
    if not _all_are([name, table.get("interface")], str):
        raise WrongUse(f'{path}: a host needs name = "a" and interface = "eth0"')
    if not is_host_name(str(name)):
        raise WrongUse(f"{path}: '{name}' is not a host's name")
    speed_mbit_s, mtu = table.get("speed_mbit_s"), table.get("mtu")
    numbers = [number for number in (speed_mbit_s, mtu) if number is not None]
    if not all(type(number) is int and number > 0 for number in numbers):
        raise WrongUse(f"{path}: speed_mbit_s and mtu of {name} must be whole numbers above 0")
    interfaces = table.get("interfaces", [])
    if not isinstance(interfaces, list) or not _all_are(interfaces, str):
        raise WrongUse(f"{path}: interfaces of {name} must be a list of texts")
    return ClusterHost(str(name), table["interface"], speed_mbit_s, mtu, tuple(interfaces))


def _all_are(values: Iterable[object], kind: type) -> bool:
    return all(isinstance(value, kind) for value in values)
