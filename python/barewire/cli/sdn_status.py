# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`barewire sdn status`: shows the state of the network and its announced jobs."""

from rich.console import Console
from rich.table import Table

from barewire.cli import options
from barewire.cli.output import print_document
from barewire.cli.sdn_client import Sdn, SdnToken, client_of


def status(sdn: Sdn = None, sdn_token: SdnToken = None, as_json: options.AsJson = False) -> None:
    """Show switches, links, hosts, flows, jobs and the policy of a running controller."""
    client = client_of(sdn, sdn_token)
    document = (
        client.get("status")
        | client.get("jobs")
        | client.get("tenants")
        | {"policy": client.get("policy")["strategies"], "pair": client.get("pair")}
    )
    if as_json:
        print_document("sdn status", document)
        return
    # Jobs choose their names.
    console = Console(highlight=False, markup=False)
    hosts_seen = f"{document['hosts']} hosts" if document["hosts"] else "no host has sent a frame yet"
    console.print(
        f"{document['connected']} of {document['switches']} switches connected, {document['links']} links, "
        f"{hosts_seen}, {document['flows']} flows ({document['being_installed']} being installed)"
    )
    pair = document["pair"]
    if pair["role"] != "single":
        other = "answers" if pair["peer_answers"] else "does not answer: there is no standby"
        console.print(f"{pair['leader']} leads since {pair['since_s']:.0f} s; {pair['peer']} {other}")
    console.print("policy: " + ", ".join(f"{profile} = {name}" for profile, name in document["policy"].items()))
    if document["jobs"]:
        table = Table("job", "name", "profile", "hosts", "pattern", "lease ends in")
        for job in document["jobs"]:
            pattern = f"{job['current'] + 1} of {job['patterns']}" if job["patterns"] else ""
            hosts = ", ".join(job["hosts"][:8]) + (" …" if len(job["hosts"]) > 8 else "")
            table.add_row(job["id"], job["name"], job["profile"], hosts, pattern, f"{job['ends_in_s']:.0f} s")
        console.print(table)
    if document["tenants"]:
        table = Table("tenant", "hosts", "share", "ceiling", "Mbit/s", "jobs", "limited at")
        for tenant in document["tenants"]:
            hosts = ", ".join(tenant["hosts"][:8]) + (" …" if len(tenant["hosts"]) > 8 else "")
            table.add_row(
                tenant["name"],
                hosts,
                f"{tenant['share']:.0%}",
                f"{tenant['ceiling']:.0%}",
                f"{tenant['sent_bit_s'] / 1e6:.1f}",
                f"{tenant['jobs']} of {tenant['jobs_max']}",
                ", ".join(tenant["limited"][:8]),
            )
        console.print(table)
    for counter, count in document["counts"].items():
        console.print(f"{counter}: {count}")
