# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Findings of the doctor and their verdict: pure values."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

SCHEMA = "barewire-doctor/1"
EXIT_READY, EXIT_CANNOT = 0, 3


class Status(StrEnum):
    """State of a finding: as it should be, worse than it could be, or missing."""

    OK = "ok"
    WARNING = "warning"
    MISSING = "missing"


@dataclass(frozen=True)
class Finding:
    """One fact about this machine; `fix` is a command or a sentence, empty only if there is nothing to fix.

    Without anything `essential` a machine cannot exchange raw frames between two hosts of a lab, the main purpose.
    """

    area: str
    what: str
    status: Status
    detail: str
    fix: str = ""
    essential: bool = False

    def __post_init__(self) -> None:
        """Reject a problem without a fix."""
        if self.status is not Status.OK and not self.fix:
            raise ValueError(f"{self.area}: {self.what} is {self.status} without a fix")


def is_ready(findings: Iterable[Finding]) -> bool:
    """Return whether raw frames between two hosts of a lab are possible."""
    return not any(finding.essential and finding.status is Status.MISSING for finding in findings)


def exit_code(findings: Iterable[Finding]) -> int:
    """Return the command's exit code."""
    return EXIT_READY if is_ready(findings) else EXIT_CANNOT


def to_document(findings: list[Finding]) -> dict[str, Any]:
    """Return the document that --json prints."""
    return {"schema": SCHEMA, "ready": is_ready(findings), "findings": [asdict(finding) for finding in findings]}


def verdict(findings: list[Finding]) -> str:
    """Summarise the findings in one sentence."""
    missing = sum(finding.status is Status.MISSING for finding in findings)
    warnings = sum(finding.status is Status.WARNING for finding in findings)
    rest = f"{warnings} warning{'s' * (warnings != 1)}, {missing} missing"
    if is_ready(findings):
        return f"This machine can measure raw Ethernet in a lab ({rest})."
    blocking = [item.what for item in findings if item.essential and item.status is Status.MISSING]
    return f"This machine cannot measure raw Ethernet in a lab: {', '.join(blocking)} ({rest})."
