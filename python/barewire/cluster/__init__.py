# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Checks the hosts, cables and switch of a cluster: measures all pairs and names what is wrong."""

from barewire.cluster.check import Effort, check
from barewire.cluster.diagnosis import diagnose
from barewire.cluster.finding import Blame, Finding
from barewire.cluster.hosts import ClusterHost, read_cluster_file, write_cluster_file
from barewire.cluster.measured import HostState, Measured, Path
from barewire.cluster.reach import LabReach, Reach, ShellReach

__all__ = [
    "Blame",
    "ClusterHost",
    "Effort",
    "Finding",
    "HostState",
    "LabReach",
    "Measured",
    "Path",
    "Reach",
    "ShellReach",
    "check",
    "diagnose",
    "read_cluster_file",
    "write_cluster_file",
]
