# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What the doctor found, and what it means: pure values and their verdict."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

SCHEMA = 1
EXIT_READY, EXIT_CANNOT = 0, 3


class Status(StrEnum):
    """How a finding is: as it should be, worse than it could be, or not there."""

    OK = "ok"
    WARNING = "warning"
    MISSING = "missing"


@dataclass(frozen=True)
class Finding:
    """One fact about this machine; `fix` is a command or a sentence, and empty only if there is nothing to fix.

    A machine on which anything `essential` is missing cannot do the main job: raw frames between two hosts of a lab.
    """

    area: str
    what: str
    status: Status
    detail: str
    fix: str = ""
    essential: bool = False

    def __post_init__(self) -> None:
        """Hold every complaint to its promise of a fix."""
        if self.status is not Status.OK and not self.fix:
            raise ValueError(f"{self.area}: {self.what} is {self.status} without a fix")


def is_ready(findings: Iterable[Finding]) -> bool:
    """Tell whether the main job can run."""
    return not any(finding.essential and finding.status is Status.MISSING for finding in findings)


def exit_code(findings: Iterable[Finding]) -> int:
    """Return the command's exit code."""
    return EXIT_READY if is_ready(findings) else EXIT_CANNOT


def to_document(findings: list[Finding]) -> dict[str, Any]:
    """Return what --json prints."""
    return {"schema": SCHEMA, "ready": is_ready(findings), "findings": [asdict(finding) for finding in findings]}


def verdict(findings: list[Finding]) -> str:
    """Say in one sentence how this machine is."""
    missing = sum(finding.status is Status.MISSING for finding in findings)
    warnings = sum(finding.status is Status.WARNING for finding in findings)
    rest = f"{warnings} warning{'s' * (warnings != 1)}, {missing} missing"
    if is_ready(findings):
        return f"This machine can measure raw Ethernet in a lab ({rest})."
    blocking = [item.what for item in findings if item.essential and item.status is Status.MISSING]
    return f"This machine cannot measure raw Ethernet in a lab: {', '.join(blocking)} ({rest})."
