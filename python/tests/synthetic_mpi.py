# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Runs of MPI libraries without the libraries: launches write the records of programs with known costs."""

import json
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from barewire.measure.mpi import MpiCampaign, MpiOrder, MpiPlan, MpiSite, measure_mpi
from barewire.measure.mpi_subjects import MpiSubject
from barewire.measure.session import StoppingRule
from barewire.models.wire import Link
from barewire.mpi import FabricOptions, Family, HostSlots, Library
from barewire.results.run import Run

LIBRARIES = {
    "openmpi": Library("openmpi", Family.OPEN_MPI, "4.1.4", Path("/nowhere/lib/libmpi.so.40")),
    "mpich-5": Library("mpich-5", Family.MPICH, "5.0.2", Path("/nowhere/lib/libmpi.so.12"), ("ofi", "ucx")),
    "intel": Library("intel", Family.INTEL, "2021.17", Path("/nowhere/lib/libmpi.so.12"), ("ofi",)),
}
SIZES = (8, 64, 1024, 16384, 65536, 131072, 262144, 1048576)
# µs of a short message one way, and per byte.
COST = {"barewire": (1.2, 0.0002), "tcp": (3.6, 0.0004)}
EAGER_BYTES, HANDSHAKE_US = 65536, 30.0
# Overhead on both sides together as a share of the time without computation.
OVERHEADS = 0.4


def subject(library: str, fabric: str, **requested: Any) -> MpiSubject:
    return MpiSubject(LIBRARIES[library], FabricOptions(fabric, **requested))


def time_us(fabric: str, size: int) -> float:
    alpha, beta = COST[fabric]
    return alpha + beta * size + (HANDSHAKE_US if size > EAGER_BYTES else 0)


@dataclass(frozen=True)
class Synthetic(MpiCampaign):
    """Launches that only write records; launch number `failing` fails like a program."""

    failing: dict[int, BaseException] = field(default_factory=dict)

    def launch(self, order: MpiOrder, records: Path) -> None:
        """Write records like the programs of mpi/, with a drift for each launch."""
        generator = np.random.default_rng(order.seed)
        start = {"record": "start", "schema": "barewire-mpi/1", "test": order.test, "ranks": order.ranks}
        written = [start, *RECORDS[order.test](order, generator, order.sizes or ())]
        whole = order.number not in self.failing
        written += [{"record": "end", "complete": True}] if whole else []
        records.write_text("".join(json.dumps(record) + "\n" for record in written))
        if not whole:
            raise self.failing[order.number]


def synthetic_mpi(
    directory: Path,
    *tests: str,
    subjects: tuple[MpiSubject, ...] | None = None,
    ranks: tuple[int, ...] = (2,),
    sizes: tuple[int, ...] = SIZES,
    launches: int = 6,
    link: Link | None = None,
    failing: dict[int, BaseException] | None = None,
    stopping_rule: StoppingRule | None = None,
) -> Run:
    """Measure into `directory`; raises the error of a failing launch, with the run on disk."""
    chosen = subjects or tuple(subject(library, fabric) for library in ("openmpi", "mpich-5") for fabric in COST)
    rule = stopping_rule or StoppingRule(launches, launches)
    plan = MpiPlan(tests, chosen, ranks, seed=1, sizes=sizes, stopping_rule=rule)
    # Not of this machine, whose cores are of no account.
    site = MpiSite((HostSlots("node1"), HostSlots("node2")), link or Link(None))
    campaign = Synthetic(site, plan, {}, failing=failing or {})
    # Tests that use the same run share one measurement.
    key = repr(campaign)
    if key in _measured:
        run, copy = _measured[key]
        shutil.copytree(copy.name, directory, dirs_exist_ok=True)
        return run
    run = measure_mpi(campaign, directory, command=["barewire", "mpi", *tests])
    copy = tempfile.TemporaryDirectory()
    shutil.copytree(directory, copy.name, dirs_exist_ok=True)
    _measured[key] = run, copy
    return run


_measured: dict[str, tuple[Run, "tempfile.TemporaryDirectory[str]"]] = {}


def sample_record(variant: str, quantity: str, size: int, rank: int, values: Any, **more: Any) -> dict[str, Any]:
    same = {"record": "samples", "variant": variant, "quantity": quantity, "unit": "ns", "message_bytes": size}
    return same | {"pairs": 1, "rank": rank, "phase": "measure", "inner": 1, "values": list(values)} | more


def _pingpong(order: MpiOrder, generator: np.random.Generator, sizes: Sequence[int]) -> Iterator[dict[str, Any]]:
    drift = generator.normal(1, 0.004)
    for size in sizes:
        for variant, factor in (("blocking-standard", 1.0), ("blocking-synchronous", 1.5)):
            ns = 1e3 * factor * drift * time_us(order.subject.requested.fabric, size)
            yield sample_record(variant, "half_round_trip", size, 0, [2 * ns], phase="warmup")
            yield sample_record(variant, "half_round_trip", size, 0, ns * generator.normal(1, 0.01, 20))


def _alltoall(order: MpiOrder, generator: np.random.Generator, _: Sequence[int]) -> Iterator[dict[str, Any]]:
    """Rank r is slower by r µs: the slowest counts."""
    for rank in range(order.ranks):
        ns = 1e3 * (time_us(order.subject.requested.fabric, 64) * order.ranks + rank)
        yield sample_record("collective", "alltoall", 64, rank, [ns, ns, ns])


def _logp(order: MpiOrder, generator: np.random.Generator, _: Sequence[int]) -> Iterator[dict[str, Any]]:
    for size in (8, 65536):
        eel = 1e3 * time_us(order.subject.requested.fabric, size) * generator.normal(1, 0.003)
        yield sample_record("roundtrip", "time", size, 0, [2 * eel])
        yield sample_record("gap", "time", size, 0, [eel])
        for variant, share in (("gap-send", 0.6 * OVERHEADS), ("gap-receive", 0.4 * OVERHEADS)):
            yield from _curve(variant, size, eel, share * eel, generator)


def _overlap(order: MpiOrder, generator: np.random.Generator, _: Sequence[int]) -> Iterator[dict[str, Any]]:
    for size in (8, 65536):
        round_trip = 2e3 * time_us(order.subject.requested.fabric, size) * generator.normal(1, 0.003)
        yield from _curve("pingpong", size, round_trip, OVERHEADS * round_trip, generator)


def _curve(
    variant: str, size: int, flat_ns: float, added_ns: float, generator: np.random.Generator
) -> Iterator[dict[str, Any]]:
    for computation in np.linspace(0, 2 * flat_ns, 11) * generator.normal(1, 0.002):
        time_ns = max(flat_ns, added_ns + computation)
        yield sample_record(variant, "time", size, 0, [time_ns] * 3, computation_ns=computation)
        yield sample_record(variant, "computation", size, 0, [computation] * 3, computation_ns=computation)


def _fft(order: MpiOrder, generator: np.random.Generator, _: Sequence[int]) -> Iterator[dict[str, Any]]:
    """Communication takes as long as a 64 KiB message for each rank; the second rank is 10 % slower."""
    for variant, hidden in (("original", 0.0), ("non-blocking", 0.5)):
        for rank in range(order.ranks):
            slow = 1.1 if rank == 1 else 1.0
            phases = {"rows": 2e6 / order.ranks, "communication": (1 - hidden) * 1e4 * order.ranks * 30}
            more = {"order": 16.0, "message_bytes": 65536 if variant == "original" else 4096}
            total = sum(phases.values()) * slow
            for quantity, ns in (phases | {"total": total}).items():
                of_rank = ns if quantity == "total" else ns * slow
                yield sample_record(variant, quantity, 0, rank, [of_rank] * 3) | more


def _radix(order: MpiOrder, generator: np.random.Generator, _: Sequence[int]) -> Iterator[dict[str, Any]]:
    """A variant that chooses reports its choice and the reason."""
    for variant, ns in (("original", 3e6), ("auto", 2e6)):
        if variant == "auto":
            reason = "fastest by the median of its trials"
            yield {"record": "choice", "variant": "auto", "message_bytes": 16384, "chosen": "x", "reason": reason}
        for rank in range(order.ranks):
            for quantity, share in (("total", 1.0), ("permutation", 0.7), ("histogram", 0.3)):
                values = ns * share * generator.normal(1, 0.01, 3)
                yield sample_record(variant, quantity, 16384, rank, values, keys=524288.0)


def _krylov(order: MpiOrder, generator: np.random.Generator, _: Sequence[int]) -> Iterator[dict[str, Any]]:
    """40 µs of computation on one rank, a quarter of it products; messages take 20 µs on any other number."""
    for variant in ("blocking", "pipelined"):
        for rank in range(order.ranks):
            exchanged = 0.0 if order.ranks == 1 else 1e4
            phases = {"halo_communication": exchanged, "reduction_communication": exchanged}
            phases |= {"stencil": 1e4 / order.ranks, "vectors": 3e4 / order.ranks}
            slow = generator.normal(1, 0.003, 3)
            for quantity, ns in {"total": sum(phases.values()), **phases}.items():
                yield sample_record(variant, quantity, 0, rank, ns * slow, side_2d=128.0)


RECORDS = {
    "pingpong": _pingpong,
    "alltoall": _alltoall,
    "logp": _logp,
    "overlap": _overlap,
    "fft": _fft,
    "radix": _radix,
    "krylov": _krylov,
}
