# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Times of the kernels in mpi/kernels, and of a Krylov iteration, on P ranks.

What they send follows from their parameters (docs/method.md, "MPI: kernels"); their computation is measured. All times
in µs, one value for each draw.
"""

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from barewire.models.collectives import ALGORITHMS
from barewire.models.costs import TwoRankCosts
from barewire.models.times import Floats

COMPLEX_BYTES = 16
KEY_BYTES = 4
KEY_BITS = 32
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
        one = costs.all_at_once(ranks - 1, stage.message_bytes)
        if variant == "non-blocking":
            others = (stage.exchanges - 1) * (ranks - 1) * costs.sustained(stage.message_bytes)
            total = total + one + np.maximum(computation / FFT_STAGES, others)
        else:
            total = total + stage.exchanges * one + computation / FFT_STAGES
    return total, sizes


def radix_time(
    costs: TwoRankCosts,
    ranks: int,
    keys: int,
    buffer_bytes: int,
    computation_us: Floats,
    *,
    bits: int = 8,
) -> tuple[Floats, tuple[float, ...]]:
    """Return the time of one sort of `keys` uniform keys on each rank, and the sizes of its messages.

    Each pass gathers all ranks' counts, then sends (P − 1)/P of the keys in full buffers while it computes: it takes as
    long as the wire, or as the processor with all its work, whichever is longer. `computation_us` is one rank's whole
    sort, measured alone with a core of its own.
    """
    passes = -(-KEY_BITS // bits)
    if ranks == 1:
        return computation_us, ()
    counts_bytes = KEY_BYTES << bits
    (gather,) = (each for each in ALGORITHMS["allgather"] if each.name == "Bruck")
    buffer = buffer_bytes // KEY_BYTES * KEY_BYTES
    messages = (ranks - 1) * keys * KEY_BYTES / ranks / buffer
    alone = costs.ranks_per_core * computation_us / passes
    wire = messages * costs.sustained(buffer)
    processor = alone if costs.processor is None else alone + messages * costs.processor_time(buffer)
    one_pass = np.maximum(wire, processor) + costs.exchange(buffer) + gather.time(costs, ranks, counts_bytes)
    return passes * one_pass, (float(buffer), *gather.sizes(ranks, counts_bytes))


def halo_messages(ranks: int) -> int:
    """Messages that a rank of a periodic grid of two dimensions, as square as possible, sends to other ranks."""
    shorter = max(side for side in range(1, int(ranks**0.5) + 1) if ranks % side == 0)
    return 2 * ((shorter > 1) + (ranks // shorter > 1))


def krylov_time(
    costs: TwoRankCosts, ranks: int, halo_bytes: int, computation_us: float, *, reductions: int = 2
) -> tuple[Floats, tuple[float, ...]]:
    """Return the time of one iteration of a Krylov solver, and the sizes of its messages.

    An iteration computes for `computation_us` with a core of its own (flops divided by their measured rate), exchanges
    a halo with its neighbours on a grid (`mpi/halo`), and adds 8 bytes over all ranks `reductions` times (2 in
    conjugate gradients).
    """
    computation = np.full(len(costs.latency.draws), costs.ranks_per_core * computation_us)
    if ranks == 1:
        return computation, ()
    (doubling,) = (each for each in ALGORITHMS["allreduce"] if each.name == "recursive doubling")
    halo = costs.all_at_once(halo_messages(ranks), halo_bytes)
    return computation + halo + reductions * doubling.time(costs, ranks, 8), (float(halo_bytes), 8.0)
