# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Times of the kernels in mpi/kernels on P ranks.

What they send follows from their parameters (docs/method.md, "MPI: kernels"); their computation is measured. All times
in µs, one value for each draw.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from barewire.models.collectives import ALGORITHMS, rounds
from barewire.models.costs import TwoRankCosts
from barewire.models.times import Floats

COMPLEX_BYTES = 16
KEY_BYTES = 4
KEY_BITS = 32
# mpi/kernels/radix.c has these by default.
DIGIT_BITS = 8
# mpi/kernels/fft/transform.c: rows exchanged at a time make a message of about this size.
FFT_MESSAGE_BYTES = 8 << 10
FFT_STAGES = 3

FftVariant = Literal["original", "row-by-row", "non-blocking"]
FFT_VARIANTS: tuple[FftVariant, ...] = get_args(FftVariant)
# The model does not tell these apart: both overlap what they send with what they compute.
RADIX_VARIANTS = ("original", "non-blocking")


@dataclass(frozen=True)
class FftStage:
    """A transposition on each rank: `exchanges` times a message of `message_bytes` to each other rank."""

    exchanges: int
    message_bytes: int


def fft_stages(order: int, ranks: int, variant: FftVariant) -> tuple[FftStage, ...]:
    """Return the three transpositions of 2^order elements. ValueError if the ranks do not divide the shorter side."""
    longer, shorter = 1 << (order + 1) // 2, 1 << order // 2
    if order < 2 or shorter % ranks:
        raise ValueError(f"2^{order} elements are a matrix of {longer} × {shorter}, and {ranks} ranks do not divide it")
    stages = []
    for rows, piece in ((shorter, longer), (longer, shorter), (shorter, longer)):
        of_rank, elements = rows // ranks, piece // ranks
        at_once = of_rank
        if variant != "original":
            at_once = min(of_rank, max(1, FFT_MESSAGE_BYTES // COMPLEX_BYTES // elements))
        stages.append(FftStage(of_rank // at_once, at_once * elements * COMPLEX_BYTES))
    return tuple(stages)


def fft_time(
    costs: TwoRankCosts, ranks: int, order: int, variant: FftVariant, computation_us: Floats
) -> tuple[Floats, tuple[float, ...]]:
    """Return the time of one transform and the sizes of its messages.

    `computation_us` is one rank's computation (transforms, twiddle factors, packing) with a core of its own. In
    non-blocking the next rows are always on their way, so a stage takes as long as the longer of its computation and
    its messages without a pause, and the exchange of its first rows, which nothing hides.
    """
    computation = costs.ranks_per_core * computation_us
    if ranks == 1:
        return computation, ()
    stages = fft_stages(order, ranks, variant)
    sizes = tuple(float(stage.message_bytes) for stage in stages)
    total = np.zeros_like(computation)
    for stage in stages:
        if variant == "non-blocking":
            first = costs.all_at_once(ranks - 1, stage.message_bytes)
            others = (stage.exchanges - 1) * (ranks - 1) * costs.sustained(stage.message_bytes)
            total = total + first + np.maximum(computation / FFT_STAGES, others + _contention(costs, ranks, stage))
        else:
            one = costs.all_to_all(ranks, stage.message_bytes)
            total = total + stage.exchanges * one + computation / FFT_STAGES
    return total, sizes


def _contention(costs: TwoRankCosts, ranks: int, stage: FftStage) -> float:
    """Time that a whole transposition waits at ports, with the rows of two exchanges on their way."""
    if costs.ports is None:
        return 0.0
    whole, in_flight = stage.exchanges * stage.message_bytes, 2 * stage.message_bytes
    return costs.ports.contention_us(ranks, whole, in_flight)


def radix_time(
    costs: TwoRankCosts,
    ranks: int,
    keys: int,
    buffer_bytes: int,
    computation_us: Floats,
) -> tuple[Floats, tuple[float, ...]]:
    """Return the time of one sort of `keys` uniform keys on each rank, and the sizes of its messages.

    Each pass gathers all ranks' counts, then sends (P − 1)/P of the keys in full buffers while it computes: it takes as
    long as the wire, or as the processor with all its work, whichever is longer. `computation_us` is one rank's whole
    sort, measured alone with a core of its own.
    """
    passes = KEY_BITS // DIGIT_BITS
    if ranks == 1:
        return computation_us, ()
    counts_bytes = KEY_BYTES << DIGIT_BITS
    (gather,) = (each for each in ALGORITHMS["allgather"] if each.name == "Bruck")
    buffer = buffer_bytes // KEY_BYTES * KEY_BYTES
    messages = (ranks - 1) * keys * KEY_BYTES / ranks / buffer
    alone = costs.ranks_per_core * computation_us / passes
    wire = messages * costs.sustained(buffer)
    if costs.ports is not None:
        # A buffer for each rank is on its way while the next one fills.
        wire = wire + costs.ports.contention_us(ranks, keys * KEY_BYTES / ranks, buffer)
    processor = alone if costs.processor is None else alone + messages * costs.processor_time(buffer)
    one_pass = np.maximum(wire, processor) + costs.exchange(buffer) + gather.time(costs, ranks, counts_bytes)
    return passes * one_pass, (float(buffer), *gather.sizes(ranks, counts_bytes))


KrylovVariant = Literal["blocking", "overlapped", "one-reduction", "pipelined"]
KRYLOV_VARIANTS: tuple[KrylovVariant, ...] = get_args(KrylovVariant)
VALUE_BYTES = 8

# Of each kernel those that have a model.
KERNEL_VARIANTS: Mapping[str, tuple[str, ...]] = {
    "fft": FFT_VARIANTS,
    "radix": RADIX_VARIANTS,
    "krylov": KRYLOV_VARIANTS,
}


@dataclass(frozen=True)
class Grid:
    """A grid of `side` points along each dimension, of all ranks together, or of each (`per_rank`)."""

    dimensions: Literal[2, 3]
    side: int
    per_rank: bool = False

    @property
    def parameter(self) -> str:
        """Its name in the records of mpi/kernels/krylov."""
        return f"side_{self.dimensions}d{'_per_rank' if self.per_rank else ''}"

    @classmethod
    def of(cls, parameter: str, side: int) -> "Grid":
        """Return the grid of a record. ValueError for any other parameter."""
        for grid in (cls(dimensions, side, per_rank) for dimensions in (2, 3) for per_rank in (False, True)):
            if grid.parameter == parameter:
                return grid
        raise ValueError(f"{parameter!r} is no parameter of a grid")

    def faces(self, ranks: int) -> tuple[tuple[int, int], ...]:
        """Return the bytes of a face and the number of neighbours, 1 or 2, for each dimension that is divided."""
        parts = divide(ranks, self.dimensions)
        lengths = [self.side if self.per_rank else -(-self.side // part) for part in parts]
        if not self.per_rank and self.side < max(parts):
            raise ValueError(f"{ranks} ranks divide a side into {max(parts)} parts, and it has {self.side} points")
        points = math.prod(lengths)
        return tuple(
            (VALUE_BYTES * points // length, min(2, part - 1))
            for length, part in zip(lengths, parts, strict=True)
            if part > 1
        )


def divide(ranks: int, dimensions: int) -> tuple[int, ...]:
    """Return numbers whose product is `ranks`, as equal as possible, descending, as MPI_Dims_create."""
    if dimensions == 1:
        return (ranks,)
    choices = [
        tuple(sorted((part, *divide(ranks // part, dimensions - 1)), reverse=True))
        for part in range(1, ranks + 1)
        if ranks % part == 0
    ]
    return min(choices, key=lambda parts: (parts[0] - parts[-1], parts))


def krylov_time(
    costs: TwoRankCosts, ranks: int, grid: Grid, variant: KrylovVariant, computation_us: Floats, stencil_us: Floats
) -> tuple[Floats, tuple[float, ...]]:
    """Return the time of one iteration of conjugate gradients, and the sizes of its messages.

    `computation_us` is one rank's computation in an iteration, `stencil_us` the part of it that is the product with the
    matrix, both with a core of its own. Of the rank with the most neighbours: blocking exchanges faces one after
    another; the others all at once, and meanwhile compute the product. A reduction adds 8 or 16 bytes over all ranks;
    the pipelined one takes place during exchange and product.
    """
    computation, stencil = costs.ranks_per_core * computation_us, costs.ranks_per_core * stencil_us
    if ranks == 1:
        return computation, ()
    (doubling,) = (each for each in ALGORITHMS["allreduce"] if each.name == "recursive doubling")
    faces = grid.faces(ranks)
    sums = VALUE_BYTES if variant in ("blocking", "overlapped") else 2 * VALUE_BYTES
    reductions = 2 if variant in ("blocking", "overlapped") else 1
    reduction = reductions * doubling.time(costs, ranks, sums)
    sizes = [size for size, count in faces for _ in range(count)]
    if variant == "blocking":
        # With two parts, one rank receives only after it has sent, in each direction.
        halo = sum(2 * (costs.exchange(size) if count == 2 else costs.one_way(size)) for size, count in faces)
        beside_halo = np.zeros_like(stencil)
    else:
        largest = max(sizes)
        halo = costs.exchange(largest) + sum(costs.sustained(size) for size in sizes) - costs.sustained(largest)
        beside_halo = stencil
    # However early messages leave, all those of an iteration pass one link.
    on_link = costs.link_time([*sizes, *[sums] * reductions * rounds(ranks)])
    product = np.maximum(halo, beside_halo)
    communication = np.maximum(product, reduction) if variant == "pipelined" else product + reduction
    time = computation - beside_halo + np.maximum(communication, on_link)
    return np.asarray(time), (*(float(size) for size, _ in faces), float(sums))
