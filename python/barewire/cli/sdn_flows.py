# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`barewire sdn flows`: shows the paths of flows, and their reasons."""

from typing import Any

from rich.console import Console
from rich.table import Table

from barewire.cli import options
from barewire.cli.output import print_document
from barewire.cli.sdn_client import Sdn, SdnToken, client_of


def flows(sdn: Sdn = None, sdn_token: SdnToken = None, as_json: options.AsJson = False) -> None:
    """Show the flows with a path: profile and how it was determined, path, and rate."""
    document = client_of(sdn, sdn_token).get("flows")
    if as_json:
        print_document("sdn flows", document)
        return
    table = Table("flow", "profile", "known by", "path", "why", "Mbit/s", "age")
    for flow in document["flows"]:
        table.add_row(
            _name(flow),
            flow["profile"],
            flow["known_by"],
            " ".join(flow["path"]) + ("" if flow["installed"] else " (being installed)"),
            flow["why"],
            f"{flow['rate_byte_s'] * 8 / 1e6:.1f}",
            f"{flow['age_s']:.0f} s",
        )
    Console(highlight=False, markup=False).print(table)


def _name(flow: dict[str, Any]) -> str:
    if flow["protocol"] in ("tcp", "udp", "tcp6", "udp6"):
        ends = f"{flow['source']}:{flow['source_port']} → {flow['destination']}:{flow['destination_port']}"
    else:
        ends = f"{flow['source']} → {flow['destination']}"
    return f"{flow['protocol']} {ends}"
