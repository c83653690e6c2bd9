# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Tests what this machine supports, rather than guessing, and tells how to fix what it lacks."""

from collections.abc import Iterable

from barewire.doctor.carriers import carrier_findings
from barewire.doctor.features import feature_findings
from barewire.doctor.finding import Finding, Status, exit_code, is_ready, to_document, verdict
from barewire.doctor.interfaces import interface_findings
from barewire.doctor.machine import machine_findings
from barewire.doctor.mpi import mpi_findings
from barewire.doctor.software import software_findings
from barewire.doctor.xdp import xdp_findings

__all__ = ["Finding", "Status", "collect", "exit_code", "is_ready", "to_document", "verdict"]


def collect(try_xdp: Iterable[str] = ()) -> list[Finding]:
    """Examine this machine, and try AF_XDP on the named interfaces; takes some seconds."""
    network = [*interface_findings(), *carrier_findings(), *xdp_findings(try_xdp)]
    return [*machine_findings(), *feature_findings(), *network, *software_findings(), *mpi_findings()]
