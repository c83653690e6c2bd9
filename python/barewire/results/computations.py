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
# The phase that messages of the same iteration may hide.
_STENCIL = "stencil"


@dataclass(frozen=True)
class Computation:
    """A kernel's computation on each of `ranks` ranks, in µs, of each launch; a kernel alone on one rank only computes.

    `parameter_value` is the order of a transform, the keys of each rank of a sort, or the side of the grid that
    `parameter` names. `stencil_us` is the part of a Krylov iteration that is the product with its matrix.
    `ranks_per_core` ranks shared each core, so that a time includes those of the others.
    """

    kernel: str
    variant: str
    ranks: int
    parameter: str
    parameter_value: float
    ranks_per_core: int
    launches_us: tuple[float, ...]
    stencil_us: tuple[float, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return one JSON object."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Inverse of `to_json`; KeyError for a missing field, ValueError for ranks below 1."""
        ranks, sharing = int(data["ranks"]), int(data["ranks_per_core"])
        if min(ranks, sharing) < 1:
            raise ValueError("a computation is of 1 rank or more, and of 1 or more on each core")
        return cls(
            str(data["kernel"]),
            str(data["variant"]),
            ranks,
            # Models from before there was a third kernel do not name it.
            str(data.get("parameter", "order" if data["kernel"] == "fft" else "keys")),
            float(data["parameter_value"]),
            sharing,
            tuple(float(value) for value in data["launches_us"]),
            tuple(float(value) for value in data.get("stencil_us", ())),
        )


def ranks_per_core(ranks: int, cores: int | None) -> int:
    """Return how many ranks share the fullest core; 1 if the number of cores is not known."""
    return 1 if cores is None else -(-ranks // cores)


def computations_of(run: Run, cores: int | None) -> list[Computation]:
    """Return the computation of every kernel, variant, number of ranks and parameter for which the run tells it.

    `cores` is the number that all ranks share, None if each has its own. On one rank the whole execution computes. On
    more it is the sum of all phases outside of MPI, if the kernel has such phases; the radix sort has one for both.
    """
    groups: dict[tuple[str, str, str, int, str, float], list[Series]] = {}
    for each in run.series:
        if is_kernel(each.test) and each.launch_medians and each.parameter_value is not None:
            key = each.test, each.subject, each.variant, each.ranks, each.parameter, each.parameter_value
            groups.setdefault(key, []).append(each)
    computations = []
    for (kernel, _, variant, ranks, parameter, value), series in groups.items():
        launches = _computation_us(series, ranks)
        if launches:
            stencil = tuple(_us(each) for each in series if each.quantity == _STENCIL)
            sharing = ranks_per_core(ranks, cores)
            computations.append(Computation(kernel, variant, ranks, parameter, value, sharing, launches, *stencil))
    return computations


def _computation_us(series: Sequence[Series], ranks: int) -> tuple[float, ...]:
    phases = [each for each in series if each.quantity != KERNEL_TOTAL]
    total = [each for each in series if each.quantity == KERNEL_TOTAL]
    if ranks == 1:
        return _us(total[0]) if total else ()
    if not any(each.quantity.endswith(_COMMUNICATION) for each in phases):
        return ()
    computing = [each for each in phases if not each.quantity.endswith(_COMMUNICATION)]
    # A launch counts if it has all phases.
    launches = sorted(set.intersection(*(set(each.by_launch) for each in computing))) if computing else []
    return tuple(sum(in_us(each.by_launch[number], each.unit) for each in computing) for number in launches)


def _us(series: Series) -> tuple[float, ...]:
    return tuple(in_us(value, series.unit) for value in series.launch_medians)
