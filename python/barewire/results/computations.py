# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Computation of the kernels on each rank, from runs of the kernels themselves."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

from barewire.results.functions import in_us
from barewire.results.quantities import KERNEL_TOTAL, is_kernel
from barewire.results.run import Run, Series

# Phases that are calls of MPI, by the end of their names.
_COMMUNICATION = "_communication"


@dataclass(frozen=True)
class Computation:
    """A kernel's computation on each of `ranks` ranks, in µs, of each launch; a kernel alone on one rank only computes.

    `parameter_value` is the order of a transform, or the keys of each rank of a sort. `ranks_per_core` ranks shared
    each core, so that a time includes those of the others.
    """

    kernel: str
    variant: str
    ranks: int
    parameter_value: float
    ranks_per_core: int
    launches_us: tuple[float, ...]

    def to_json(self) -> dict[str, Any]:
        """Return one JSON object."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Inverse of `to_json`; KeyError for a missing field."""
        return cls(
            str(data["kernel"]),
            str(data["variant"]),
            int(data["ranks"]),
            float(data["parameter_value"]),
            int(data["ranks_per_core"]),
            tuple(float(value) for value in data["launches_us"]),
        )


def ranks_per_core(ranks: int, cores: int | None) -> int:
    """Return how many ranks share the fullest core; 1 if the number of cores is not known."""
    return 1 if cores is None else -(-ranks // cores)


def computations_of(run: Run, cores: int | None) -> list[Computation]:
    """Return the computation of every kernel, variant, number of ranks and parameter for which the run tells it.

    `cores` is the number that all ranks share, None if each has its own. On one rank the whole execution computes. On
    more it is the sum of all phases outside of MPI, if the kernel has such phases; the radix sort has one for both.
    """
    groups: dict[tuple[str, str, str, int, float], list[Series]] = {}
    for each in run.series:
        if is_kernel(each.test) and each.launch_medians and each.parameter_value is not None:
            key = each.test, each.subject, each.variant, each.ranks, each.parameter_value
            groups.setdefault(key, []).append(each)
    computations = []
    for (kernel, _, variant, ranks, value), series in groups.items():
        launches = _computation_us(series, ranks)
        if launches:
            computations.append(Computation(kernel, variant, ranks, value, ranks_per_core(ranks, cores), launches))
    return computations


def _computation_us(series: Sequence[Series], ranks: int) -> tuple[float, ...]:
    phases = [each for each in series if each.quantity != KERNEL_TOTAL]
    total = [each for each in series if each.quantity == KERNEL_TOTAL]
    if ranks == 1:
        return tuple(in_us(value, total[0].unit) for value in total[0].launch_medians) if total else ()
    if not any(each.quantity.endswith(_COMMUNICATION) for each in phases):
        return ()
    computing = [each for each in phases if not each.quantity.endswith(_COMMUNICATION)]
    launches = min(len(each.launch_medians) for each in computing)
    return tuple(sum(in_us(each.launch_medians[number], each.unit) for each in computing) for number in range(launches))
