# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Runs doctor on every host, and reads what it does not like."""

import asyncio
import sys
from collections.abc import Mapping, Sequence

from barewire.cluster.hosts import ClusterHost
from barewire.cluster.reach import Reach
from barewire.cluster.remote import document_in, run
from barewire.doctor import Status

_TIMEOUT_S = 60.0
# Share of the hosts.
FEW = 1 / 3


async def examine(reach: Reach, hosts: Sequence[ClusterHost]) -> tuple[dict[str, dict[str, str]], list[str]]:
    """Return for each host what its doctor found missing or did not like, and remarks on hosts without a doctor."""
    if reach.is_one_machine:
        found = await _complaints([sys.executable, "-m", "barewire", "doctor", "--json"])
        remark = "all hosts are this machine: doctor ran once"
        return (
            ({}, [f"doctor: {found}"]) if isinstance(found, str) else ({host.name: found for host in hosts}, [remark])
        )
    commands = [reach.command(host.name, ["barewire", "doctor", "--json"]) for host in hosts]
    results = await asyncio.gather(*map(_complaints, commands))
    examined: dict[str, dict[str, str]] = {}
    remarks = []
    for host, result in zip(hosts, results, strict=True):
        if isinstance(result, str):
            remarks.append(f"no doctor on {host.name}: {result}")
        else:
            examined[host.name] = result
    return examined, [*remarks, *unlike_others(examined)]


def unlike_others(examined: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Return what the doctor does not like on few hosts only: what all hosts share explains no difference; pure."""
    remarks = []
    for what in dict.fromkeys(what for complaints in examined.values() for what in complaints):
        hosts = [host for host, complaints in examined.items() if what in complaints]
        if len(hosts) <= FEW * len(examined):
            remarks.append(f"doctor, only on {', '.join(hosts)}: {what}: {examined[hosts[0]][what]}")
    return remarks


async def _complaints(command: Sequence[str]) -> dict[str, str] | str:
    """Return what one doctor does not like, or why there is none."""
    try:
        status, output, errors = await run(command, _TIMEOUT_S)
    except FileNotFoundError:
        return "barewire is not in the PATH"
    findings = _findings(output)
    if findings is None:
        return (errors.strip().splitlines() or [f"exit code {status}"])[-1]
    bad = (finding for finding in findings if finding["status"] != Status.OK)
    return {finding["what"]: f"{finding['detail']}; fix: {finding['fix']}" for finding in bad}


def _findings(output: str) -> list[dict[str, str]] | None:
    """Return what the document says, which is one line: a login may print a greeting before it."""
    for line in output.splitlines():
        document = document_in(line.encode())
        if document is not None and "findings" in document:
            return list(document["findings"])
    return None
