# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What this machine can do, tried rather than guessed, and how to fix what it cannot."""

from barewire.doctor.features import feature_findings
from barewire.doctor.finding import Finding, Status, exit_code, is_ready, to_document, verdict
from barewire.doctor.interfaces import interface_findings
from barewire.doctor.machine import machine_findings
from barewire.doctor.software import software_findings

__all__ = ["Finding", "Status", "collect", "exit_code", "is_ready", "to_document", "verdict"]


def collect() -> list[Finding]:
    """Examine this machine; takes some seconds."""
    return [*machine_findings(), *feature_findings(), *interface_findings(), *software_findings()]
