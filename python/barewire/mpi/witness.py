# SPDX-License-Identifier: Apache-2.0 OR MIT
"""One rank of a job that inspects itself: witness.py LIBRARY. Connects to all ranks, then prints one line of JSON.

It replaces the user's program in the same command with the same settings. It reports the kernel's view of its own
process: mapped files and open sockets. It needs no compiler and calls only functions that all MPI libraries export,
so that it works with any of them.
"""

import contextlib
import ctypes
import fcntl
import json
import os
import re
import socket
import struct
import sys
from pathlib import Path
from typing import Any

MARK = "barewire-witness "
_AF_XDP = 44
_SIOCGIFADDR = 0x8915  # linux/sockios.h
_MPICH_WORLD = 0x4400_0000  # MPI_COMM_WORLD of the ABI that MPICH and Intel MPI share
_MPICH_INT = 0x4C00_0405  # MPI_INT there
_ALL_CONNECTED = 64  # ranks
_FILES = re.compile(r"/(?:libfabric\.so|libucp\.so|libmpi(?:ch|_abi)?\.so|lib\w+-fi\.so)[^/]*$")


def main(library: str) -> None:
    """Join the job, connect, report, and leave."""
    # A host of another architecture has it in another folder, where the linker finds it as it does for programs.
    library = library if Path(library).exists() else Path(library).name
    mpi = ctypes.CDLL(library, mode=ctypes.RTLD_GLOBAL)
    world: Any = ctypes.c_int(_MPICH_WORLD)
    if hasattr(mpi, "ompi_mpi_comm_world"):
        world = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.in_dll(mpi, "ompi_mpi_comm_world")))
    rank = ctypes.c_int()
    mpi.MPI_Init(None, None)
    mpi.MPI_Comm_rank(world, ctypes.byref(rank))
    _connect(mpi, world)
    facts = {"rank": rank.value, "host": socket.gethostname(), "files": _files(), **_sockets()}
    facts["libfabric"] = _libfabric_version(facts["files"])
    facts["own"], facts["reached"] = _reached(facts["files"])
    facts["auth"] = os.environ.get("FI_BAREWIRE_AUTH") or "none"
    mpi.MPI_Barrier(world)  # no rank leaves before all have inspected their sockets
    sys.stdout.write(f"{MARK}{json.dumps(facts)}\n")
    sys.stdout.flush()
    mpi.MPI_Finalize()


def _files() -> list[str]:
    lines = Path("/proc/self/maps").read_text().splitlines()
    paths = {line.split(maxsplit=5)[5] for line in lines if "/" in line}
    return sorted(path for path in paths if _FILES.search(path))


def _libfabric_version(files: list[str]) -> str | None:
    for file in files:
        if "/libfabric.so" in file:
            version = ctypes.CDLL(file).fi_version()
            return f"{version >> 16}.{version & 0xFFFF}"
    return None


def _connect(mpi: Any, world: Any) -> None:
    """Make libraries that connect lazily open their connections: all of them, if they are not too many."""
    size = ctypes.c_int()
    mpi.MPI_Comm_size(world, ctypes.byref(size))
    if size.value <= _ALL_CONNECTED:
        integer: Any = ctypes.c_int(_MPICH_INT)
        if hasattr(mpi, "ompi_mpi_int"):
            integer = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.in_dll(mpi, "ompi_mpi_int")))
        sent, received = (ctypes.c_int * size.value)(), (ctypes.c_int * size.value)()
        mpi.MPI_Alltoall(sent, 1, integer, received, 1, integer, world)
    mpi.MPI_Barrier(world)


def _reached(files: list[str]) -> tuple[list[str], dict[str, str]]:
    """Return the addresses of our provider's endpoints, and by what each of their peers is reached."""
    own, reached = [], {}
    for file in files:
        if file.endswith("/libbarewire-fi.so"):
            provider = ctypes.CDLL(file)
            text = ctypes.create_string_buffer(1 << 20)
            length = provider.barewire_reached(text, ctypes.c_size_t(len(text)))
            for line in text.raw[: min(length, len(text))].decode().splitlines():
                carrier, address = line.split()
                if carrier == "own":
                    own.append(address)
                else:
                    reached[address] = carrier
    return own, reached


def _sockets() -> dict[str, Any]:
    """Return packet and UDP sockets' interfaces with their MTU, whether an XDP socket exists, and TCP peers."""
    packet, udp, peers, xdp = set(), set(), set(), False
    interfaces = _interfaces_by_address()
    for descriptor in Path("/proc/self/fd").iterdir():
        try:
            if not str(descriptor.readlink()).startswith("socket:"):
                continue
            # Python calls getsockname to learn a socket's family; AF_XDP does not support it.
            with socket.socket(socket.AF_UNIX, socket.SOCK_RAW, 0, os.dup(int(descriptor.name))) as any_socket:
                if any_socket.getsockopt(socket.SOL_SOCKET, socket.SO_DOMAIN) == _AF_XDP:
                    xdp = True
                    continue
            with socket.socket(fileno=os.dup(int(descriptor.name))) as connected:
                if connected.family == socket.AF_PACKET:
                    packet.add(connected.getsockname()[0])
                elif connected.family not in (socket.AF_INET, socket.AF_INET6):
                    continue
                elif connected.type == socket.SOCK_STREAM:
                    peers.add(connected.getpeername()[0])
                elif (address := connected.getsockname()[0]) in interfaces:
                    udp.add(interfaces[address])
        except OSError:  # closed in the meantime, or not connected
            continue
    mtus = {name: int(Path(f"/sys/class/net/{name}/mtu").read_text()) for name in packet | udp}
    return {
        "packet": {name: mtus[name] for name in packet},
        "udp": {name: mtus[name] for name in udp},
        "xdp": xdp,
        "tcp_peers": sorted(peers - {"127.0.0.1", "::1"}),
    }


def _interfaces_by_address() -> dict[str, str]:
    """Return the name of the interface of each of this host's addresses."""
    found = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        for _, name in socket.if_nameindex():
            request = struct.pack("16s24x", name.encode())
            with contextlib.suppress(OSError):  # it has no address of version 4
                answer = fcntl.ioctl(any_socket, _SIOCGIFADDR, request)
                found[socket.inet_ntop(socket.AF_INET, answer[20:24])] = name
    with contextlib.suppress(OSError):  # a kernel without version 6
        for line in Path("/proc/net/if_inet6").read_text().splitlines():
            digits, *_, name = line.split()
            found[socket.inet_ntop(socket.AF_INET6, bytes.fromhex(digits))] = name
    return found


if __name__ == "__main__":
    main(sys.argv[1])
