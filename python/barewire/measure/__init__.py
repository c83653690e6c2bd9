# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Runs of native programs: their launches, order, hosts and results."""

from barewire.measure.recover import recover_run
from barewire.measure.runner import Plan, measure
from barewire.measure.sites import LabSite, RemoteSite, Site
from barewire.measure.subjects import Subject, parse_processes, parse_subjects, parse_tests

__all__ = [
    "LabSite",
    "Plan",
    "RemoteSite",
    "Site",
    "Subject",
    "measure",
    "parse_processes",
    "parse_subjects",
    "parse_tests",
    "recover_run",
]
