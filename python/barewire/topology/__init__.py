# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Switched networks as data: what the lab builds, what the controller discovers, what strategies route on."""

from barewire.topology.network import Network, Path, Port, shortest_paths

__all__ = ["Network", "Path", "Port", "shortest_paths"]
