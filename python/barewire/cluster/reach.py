# SPDX-License-Identifier: Apache-2.0 OR MIT
"""How programs are started on the hosts of a cluster: in a lab, or on real machines through ssh."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from barewire.lab import Lab
from barewire.measure.sites import LOCAL_NAMES

SSH = ("ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10")


class Reach(Protocol):
    """Starts programs on hosts."""

    @property
    def is_one_machine(self) -> bool:
        """Whether all hosts are the same machine, which is examined once."""

    def command(self, host: str, command: Sequence[str]) -> list[str]:
        """Return the command line that runs `command` on a host."""


@dataclass(frozen=True)
class LabReach:
    """The hosts of a lab."""

    lab: Lab
    is_one_machine: bool = True

    def command(self, host: str, command: Sequence[str]) -> list[str]:
        """Return the command line that runs `command` in a host's namespaces."""
        return self.lab.command(host, command)


@dataclass(frozen=True)
class ShellReach:
    """Real machines, which find native programs by name; `localhost` is this one."""

    remote_shell: tuple[str, ...] = SSH
    is_one_machine: bool = False

    def command(self, host: str, command: Sequence[str]) -> list[str]:
        """Return the command line that runs `command` on a machine."""
        if host in LOCAL_NAMES:
            return list(command)
        return [*self.remote_shell, host, shlex.join([Path(command[0]).name, *command[1:]])]
