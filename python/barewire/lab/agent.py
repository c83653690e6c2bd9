#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Replaces ssh inside a lab: agent.py [OPTION…] HOST COMMAND…, started by a launcher on one of the hosts.

The command runs in the other host's namespaces, on its cores, by `sh -c` like a remote shell's. The environment has
each host's process and cores. Options are ssh's and are ignored.
"""

import ctypes
import json
import os
import sys

# Nothing of pathlib and typing: importing them would take as long as all the rest.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

VARIABLE = "BAREWIRE_LAB_HOSTS"  # {"h1": [process number in the lab's process namespace, [core, …]], …}
CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWNET = 0x0002_0000, 0x0400_0000, 0x4000_0000
EXIT_UNREACHABLE = 255  # ssh's own


def main(arguments: list[str]) -> "NoReturn":
    """Enter the host and execute the command."""
    while arguments and arguments[0].startswith("-"):
        arguments = arguments[1:]
    if len(arguments) < 2:
        _fail("give a host and a command")
    host, command = arguments[0], " ".join(arguments[1:])
    hosts = json.loads(os.environ.get(VARIABLE, "{}"))
    if host not in hosts:
        _fail(f"this lab has no host '{host}'; there are: {', '.join(hosts) or 'none'}")
    pid, cpus = hosts[host]
    directory = os.getcwd()
    try:
        handle = os.pidfd_open(pid)
        if ctypes.CDLL(None, use_errno=True).setns(handle, CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        os.close(handle)
        os.chdir(directory)  # a new mount namespace starts at its root
        os.sched_setaffinity(0, cpus)
    except OSError as error:
        _fail(f"host '{host}' cannot be entered: {error}")
    os.execv("/bin/sh", ["sh", "-c", command])


def _fail(message: str) -> "NoReturn":
    os.write(2, f"barewire lab: {message}\n".encode())
    os._exit(EXIT_UNREACHABLE)


if __name__ == "__main__":
    main(sys.argv[1:])
