# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Unmodified MPI programs from Debian, launched alternately over Barewire and TCP; each result is checked."""

from barewire.applications.application import Application
from barewire.applications.campaign import Campaign, Plan, Skipped, find_programs
from barewire.applications.catalog import APPLICATIONS
from barewire.applications.results import Results, Row, rows_of
from barewire.applications.sites import SITES, Site

__all__ = [
    "APPLICATIONS",
    "SITES",
    "Application",
    "Campaign",
    "Plan",
    "Results",
    "Row",
    "Site",
    "Skipped",
    "find_programs",
    "rows_of",
]
