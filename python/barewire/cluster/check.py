# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The course of a check: cores, all pairs in rounds, all hosts at once, and once more what looks wrong."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, TypeVar

from barewire.cluster.agents import Agent, HostFailed, agents, mixed_carriers
from barewire.cluster.attribution import both_ways
from barewire.cluster.diagnosis import diagnose
from barewire.cluster.doctors import examine
from barewire.cluster.finding import OF_CORES, Finding, Kind
from barewire.cluster.hosts import ClusterHost
from barewire.cluster.measured import HostState, Measured, confirmed
from barewire.cluster.pairs import Effort, measure_pair, streams_together
from barewire.cluster.reach import Reach
from barewire.cluster.tournament import Pair, permutations, tournament
from barewire.errors import MachineCannot, WrongUse

__all__ = ["Checked", "Effort", "check"]

# Confirming a host's port takes this many of its pairs; confirming the network this many of all.
_PAIRS_REPEATED = 6
_PAIRS_REPEATED_MAX = 40
_CONFIRMATIONS = 4
_WORK_ROUNDS = 3
_HOSTS_MIN = 2

Progress = Callable[[int, int, str], None]
_T = TypeVar("_T")


@dataclass(frozen=True)
class Checked:
    """What was measured, what is wrong, what looked wrong and was not confirmed, and remarks on the measurement."""

    measured: Measured
    findings: tuple[Finding, ...]
    unconfirmed: tuple[Finding, ...]
    remarks: tuple[str, ...]


def check(
    reach: Reach,
    hosts: Sequence[ClusterHost],
    effort: Effort = Effort(),  # noqa: B008 - immutable
    *,
    carrier: str = "auto",
    unreachable: Mapping[str, str] = MappingProxyType({}),
    with_doctor: bool = True,
    progress: Progress = lambda done, total, label: None,
) -> Checked:
    """Measure all hosts and pairs and diagnose them. MachineCannot if fewer than two hosts can be measured.

    `unreachable` are further hosts of which it is known, with the reason, that they cannot be measured.
    """
    if len(hosts) + len(unreachable) < _HOSTS_MIN:
        raise WrongUse("a check needs two hosts at least: --hosts a,b")
    _require_hosts(len(hosts), unreachable)
    return asyncio.run(_check(reach, hosts, effort, carrier, unreachable, with_doctor, progress))


async def _check(
    reach: Reach,
    hosts: Sequence[ClusterHost],
    effort: Effort,
    carrier: str,
    unreachable: Mapping[str, str],
    with_doctor: bool,
    progress: Progress,
) -> Checked:
    doctor, remarks = await examine(reach, hosts) if with_doctor else ({}, [])
    async with agents(reach, hosts, carrier) as (working, facts, failed):
        reason = mixed_carriers(facts)
        if reason is None:
            course = _Course(working, facts, {**unreachable, **failed}, doctor, effort, progress)
            return await course.run([*remarks, *_carrier_remark(facts)])
    # Frames and UDP do not meet: all hosts use what all of them may use.
    async with agents(reach, hosts, "udp") as (working, facts, failed):
        course = _Course(working, facts, {**unreachable, **failed}, doctor, effort, progress)
        return await course.run([*remarks, f"measured over UDP, because not all hosts may send frames: {reason}"])


def _require_hosts(count: int, unreachable: Mapping[str, str]) -> None:
    if count < _HOSTS_MIN:
        reasons = "; ".join(f"{host}: {reason}" for host, reason in unreachable.items())
        raise MachineCannot(f"only {count} of the hosts can be measured: {reasons}")


def _carrier_remark(facts: Mapping[str, Mapping[str, Any]]) -> list[str]:
    reasons = sorted({str(fact["reason"]) for fact in facts.values() if fact["carrier"] == "udp"})
    return [f"measured over UDP: {'; '.join(reasons)}"] if reasons else []


class _Course:
    """One check with agents that work.

    A host whose agent ends or does not answer meanwhile is unreachable from then on, and the others are measured.
    """

    def __init__(
        self,
        working: Mapping[str, Agent],
        facts: Mapping[str, Mapping[str, Any]],
        failed: Mapping[str, str],
        doctor: Mapping[str, Mapping[str, str]],
        effort: Effort,
        progress: Progress,
    ) -> None:
        self._agents, self._facts, self._effort, self._progress = dict(working), dict(facts), effort, progress
        _require_hosts(len(working), failed)
        states = {name: _state(agent.host, facts[name], doctor.get(name, {})) for name, agent in working.items()}
        self._measured = Measured(states, {}, unreachable=failed)
        self._shares_cores = self._measured.shares_cores
        # What was measured again: paths, hosts' cores, all at once.
        self._repeated: set[Pair] = set()
        self._worked: set[str] = set()
        self._is_together_repeated = False

    async def run(self, remarks: list[str]) -> Checked:
        await self._work(self._effort.work_ms, 1)
        await self._all_pairs()
        await self._all_together(self._effort.together_ms)
        suspected = await self._confirm()
        await self._read_errors()
        findings = tuple(finding for finding in diagnose(self._measured) if self._is_repeated(finding))
        still = {finding.subject for finding in findings}
        unconfirmed = tuple(finding for finding in suspected if finding.subject not in still)
        if self._shares_cores:
            remarks.append("the hosts share cores: rates are those of this machine, and compare with each other only")
        return Checked(self._measured, findings, unconfirmed, tuple(remarks))

    async def _all_pairs(self) -> None:
        """Measure every pair once; the first round pair by pair, as the measure of an idle switch."""
        rounds = tournament(list(self._agents))
        total, done = sum(map(len, rounds)), 0
        for number, pairs in enumerate(rounds):
            is_alone = number == 0 or self._shares_cores
            for group in [[pair] for pair in pairs] if is_alone else [pairs]:
                await self._measure(group, self._effort)
                done += len(group)
                self._progress(done, total, "pairs")
            if number == 0:
                alone = frozenset(path for first, second in pairs for path in ((first, second), (second, first)))
                self._measured = replace(self._measured, alone=alone)

    async def _measure(self, pairs: Iterable[Pair], effort: Effort) -> None:
        """Measure disjoint pairs at once."""
        measured = await self._answers(
            measure_pair(self._agents[first], self._agents[second], (self._facts[first], self._facts[second]), effort)
            for first, second in self._present(pairs)
        )
        paths = dict(self._measured.paths)
        for both in measured:
            for ends, path in (both or {}).items():
                paths[ends] = confirmed(paths[ends], path) if ends in paths else path
        self._measured = replace(self._measured, paths=paths)

    async def _all_together(self, milliseconds: int) -> None:
        """Let every host send and receive at once."""
        sets = permutations(list(self._agents), self._effort.permutations)
        for number, planned in enumerate(sets):
            paths = self._present(planned)
            streams = await self._answers(streams_together(self._agents, self._facts, paths, milliseconds))
            new = {path: stream for path, stream in zip(paths, streams, strict=True) if stream is not None}
            self._measured = replace(self._measured, together={**self._measured.together, **new})
            self._progress(number + 1, len(sets), "all at once")

    async def _work(self, milliseconds: int, rounds: int) -> None:
        """Let all hosts compute: one after the other where they share cores. The best of all rounds counts."""
        for _ in range(rounds):
            groups = [[name] for name in self._agents] if self._shares_cores else [[*self._agents]]
            for group in groups:
                orders = (self._agents[name].order("work", milliseconds=milliseconds) for name in group)
                hosts = {}
                for name, told in zip(group, await self._answers(orders), strict=True):
                    if told is None:
                        continue
                    host, share = self._measured.hosts[name], told["cpu_ns"] / told["wall_ns"]
                    hosts[name] = replace(
                        host,
                        core_share=max(host.core_share or 0.0, share),
                        work_ns=min(host.work_ns or float("inf"), told["best_unit_ns"]),
                    )
                self._measured = replace(self._measured, hosts={**self._measured.hosts, **hosts})

    async def _confirm(self) -> list[Finding]:
        """Measure again, longer and alone, what looks wrong; return all that looked so.

        What turns out to be healthy may have hidden something else, which then is measured again as well. A single
        path, without others as witnesses, is measured again as long as it looks wrong.
        """
        suspected: dict[tuple[Kind, str], Finding] = {}
        for _ in range(_CONFIRMATIONS):
            now = diagnose(self._measured)
            suspected |= {(finding.kind, finding.subject): finding for finding in now}
            fresh = [finding for finding in now if finding.is_of_path or not self._is_repeated(finding)]
            if not fresh:
                break
            await self._repeat(fresh)
        return list(suspected.values())

    async def _repeat(self, suspected: Sequence[Finding]) -> None:
        longer = self._effort.longer()
        pairs = _pairs_to_repeat(suspected)
        for done, pair in enumerate(pairs, start=1):
            await self._measure([pair], longer)
            self._progress(done, len(pairs), "confirming")
        self._repeated |= both_ways(pairs)
        hosts = {finding.subject for finding in suspected if finding.kind in OF_CORES}
        if hosts:
            # All, because the load of a machine that they share changes, and from new, because the longer time counts.
            states = {name: replace(host, core_share=None) for name, host in self._measured.hosts.items()}
            self._measured = replace(self._measured, hosts=states)
            await self._work(longer.work_ms, _WORK_ROUNDS)
            self._worked |= hosts
        if any(finding.kind is Kind.OVERLOAD for finding in suspected):
            await self._all_together(longer.together_ms)
            self._is_together_repeated = True

    def _is_repeated(self, finding: Finding) -> bool:
        """Return whether a finding rests on a second measurement, or on what the system says."""
        if finding.kind in OF_CORES:
            return finding.subject in self._worked
        if finding.kind is Kind.OVERLOAD:
            return self._is_together_repeated
        return not finding.paths or not self._repeated.isdisjoint(finding.paths)

    async def _read_errors(self) -> None:
        """Note the errors that the interfaces counted during the check."""
        names = list(self._agents)
        told = await self._answers(agent.order("interface") for agent in self._agents.values())
        hosts = dict(self._measured.hosts)
        for name, after in zip(names, told, strict=True):
            if after is None:
                continue
            before = self._facts[name]["interface"]
            new = {
                error: count - before["errors"][error]
                for error, count in after["errors"].items()
                if count is not None and before["errors"][error] is not None
            }
            hosts[name] = replace(hosts[name], errors={error: count for error, count in new.items() if count > 0})
        self._measured = replace(self._measured, hosts=hosts)

    def _present(self, pairs: Iterable[Pair]) -> list[Pair]:
        """Return those pairs both of whose hosts are still measured."""
        return [pair for pair in pairs if self._agents.keys() >= {*pair}]

    async def _answers(self, measurements: Iterable[Awaitable[_T]]) -> list[_T | None]:
        """Wait for measurements that run at once; None for those that failed because of a host, which is left out."""
        answers: list[_T | None] = []
        for answer in await asyncio.gather(*measurements, return_exceptions=True):
            if isinstance(answer, HostFailed):
                self._leave_out(answer)
                answers.append(None)
            elif isinstance(answer, BaseException):
                raise answer
            else:
                answers.append(answer)
        return answers

    def _leave_out(self, failed: HostFailed) -> None:
        """Forget what was measured of a host: it is unreachable now. MachineCannot if fewer than two are left."""
        self._agents.pop(failed.host, None)
        self._facts.pop(failed.host, None)
        measured = self._measured
        self._measured = replace(
            measured,
            hosts={name: host for name, host in measured.hosts.items() if name != failed.host},
            paths={ends: path for ends, path in measured.paths.items() if failed.host not in ends},
            together={ends: path for ends, path in measured.together.items() if failed.host not in ends},
            unreachable={**measured.unreachable, failed.host: failed.reason},
        )
        _require_hosts(len(self._agents), self._measured.unreachable)


def _pairs_to_repeat(suspected: Sequence[Finding]) -> list[Pair]:
    """Choose some pairs of each suspect, each pair once, ports before single paths."""
    chosen: dict[frozenset[str], Pair] = {}
    for finding in sorted(suspected, key=lambda finding: finding.is_of_path):
        pairs = {frozenset(path): path for path in finding.paths}
        for ends, pair in list(pairs.items())[:: max(1, len(pairs) // _PAIRS_REPEATED)][:_PAIRS_REPEATED]:
            chosen.setdefault(ends, pair)
    return list(chosen.values())[:_PAIRS_REPEATED_MAX]


def _state(host: ClusterHost, fact: Mapping[str, Any], doctor: Mapping[str, str]) -> HostState:
    return HostState(
        interface=host.interface,
        mtu=fact["mtu"],
        carrier=fact["carrier"],
        speed_mbit_s=fact["interface"]["speed_mbit_s"],
        expected_speed_mbit_s=host.speed_mbit_s,
        expected_mtu=host.mtu,
        machine=fact["machine"],
        cores=tuple(fact["cores"]),
        duplex=fact["interface"]["duplex"],
        doctor=doctor,
    )
