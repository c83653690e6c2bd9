# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Costs of collectives and kernels follow the published formulas where messages follow Hockney's model.

The oracle for schedules is a small simulation of messages between ranks, without the formulas.
"""

import math

import numpy as np
import pytest

from barewire.models.collectives import ALGORITHMS, rounds
from barewire.models.costs import TwoRankCosts
from barewire.models.interpolation import Interpolated
from barewire.models.kernels import Grid, divide, fft_stages, fft_time, krylov_time, radix_time
from barewire.models.times import CannotSay, Times

ALPHA, BETA = 10.0, 0.01
SIZES = tuple(2**n for n in range(0, 23))


def curve(alpha: float, beta: float) -> Interpolated:
    times = Times(SIZES, np.tile(alpha + beta * np.asarray(SIZES), (6, 1)))
    return Interpolated.through(times, np.random.default_rng(0))


def costs(sharing: int = 1, overhead: float | None = None) -> TwoRankCosts:
    processor = None if overhead is None else curve(overhead, 0.0)
    return TwoRankCosts(curve(ALPHA, BETA), processor=processor, ranks_per_core=sharing)


def predicted(collective: str, name: str, ranks: int, size: int) -> float:
    (algorithm,) = (each for each in ALGORITHMS[collective] if each.name == name)
    return float(algorithm.time(costs(), ranks, size)[0])


@pytest.mark.parametrize("ranks", [2, 4, 8, 16])
@pytest.mark.parametrize("size", [1024, 1 << 20])
def test_collectives_cost_what_thakur_and_others_derive(ranks: int, size: int) -> None:
    steps, share = math.log2(ranks), (ranks - 1) / ranks
    expected = {
        ("bcast", "binomial tree"): steps * (ALPHA + BETA * size),
        ("bcast", "scatter and ring allgather"): (steps + ranks - 1) * ALPHA + 2 * share * BETA * size,
        ("allreduce", "recursive doubling"): steps * (ALPHA + BETA * size),
        ("allreduce", "ring"): 2 * (ranks - 1) * ALPHA + 2 * share * BETA * size,
        ("allreduce", "Rabenseifner"): 2 * steps * ALPHA + 2 * share * BETA * size,
        ("reduce-scatter", "recursive halving"): steps * ALPHA + share * BETA * size,
        ("allgather", "ring"): (ranks - 1) * (ALPHA + BETA * size),
        ("allgather", "Bruck"): steps * ALPHA + (ranks - 1) * BETA * size,
        ("alltoall", "pairwise exchange"): (ranks - 1) * (ALPHA + BETA * size),
        ("alltoall", "Bruck"): steps * (ALPHA + BETA * size * ranks / 2),
        ("barrier", "dissemination"): steps * (ALPHA + BETA),
    }
    for (collective, name), time in expected.items():
        assert predicted(collective, name, ranks, size) == pytest.approx(time, rel=1e-6), (collective, name)


@pytest.mark.parametrize("ranks", range(2, 18))
def test_a_simulated_binomial_tree_reaches_all_ranks_in_these_rounds(ranks: int) -> None:
    """In each round every rank that has the message sends it to one that lacks it."""
    having, played = {0}, 0
    while len(having) < ranks:
        lacking = [rank for rank in range(ranks) if rank not in having]
        having |= set(lacking[: len(having)])
        played += 1
    assert rounds(ranks) == played


@pytest.mark.parametrize("ranks", range(2, 18))
def test_brucks_rounds_deliver_every_block(ranks: int) -> None:
    """A block whose distance has a bit travels in that bit's round, so the bytes of all rounds are known."""
    (bruck,) = (each for each in ALGORITHMS["alltoall"] if each.name == "Bruck")
    assert sum(bruck.sizes(ranks, 1)) == sum(bin(distance).count("1") for distance in range(ranks))


@pytest.mark.parametrize("order", [16, 17, 20])
@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_an_fft_sends_what_the_study_says(order: int, ranks: int) -> None:
    """A whole transposition: 16 · N / P² bytes; a row: 16 · √N / P bytes where N is a square."""
    for stage in fft_stages(order, ranks, "original"):
        assert stage.exchanges == 1 and stage.message_bytes == 16 * 2**order // ranks**2
    for stage in fft_stages(order, ranks, "row-by-row"):
        assert stage.exchanges * stage.message_bytes == 16 * 2**order // ranks**2
        if order % 2 == 0:
            assert stage.message_bytes % (16 * 2 ** (order // 2) // ranks) == 0
    with pytest.raises(ValueError, match="do not divide"):
        fft_stages(4, 8, "original")


def test_a_transform_is_computation_and_three_transpositions() -> None:
    computation = np.full(len(costs().latency.draws), 1000.0)
    time, sizes = fft_time(costs(), 4, 16, "original", computation)
    block = 16 * 2**16 // 16
    assert sizes == (block,) * 3
    assert time[0] == pytest.approx(1000 + 3 * 3 * (ALPHA + BETA * block))
    hidden, _ = fft_time(costs(), 4, 16, "non-blocking", computation)
    rows, _ = fft_time(costs(), 4, 16, "row-by-row", computation)
    assert hidden[0] < rows[0]
    assert fft_time(costs(), 1, 16, "original", computation)[0][0] == 1000


def test_a_sort_is_bounded_by_the_wire_or_by_the_processor() -> None:
    keys, buffer, ranks = 65536, 16384, 4
    none = np.zeros(len(costs().latency.draws))
    messages = (ranks - 1) * keys * 4 / ranks / buffer
    time, _ = radix_time(costs(), ranks, keys, buffer, none)
    assert time[0] == pytest.approx(4 * messages * (ALPHA + BETA * buffer), rel=0.2)
    slow, _ = radix_time(costs(), ranks, keys, buffer, none + 1e6)
    assert slow[0] == pytest.approx(1e6, rel=0.01)


def test_ranks_that_share_a_core_compute_in_turn() -> None:
    computation = np.full(len(costs().latency.draws), 1e6)
    alone, _ = fft_time(costs(), 4, 16, "original", computation)
    shared, _ = fft_time(costs(2, overhead=3.0), 4, 16, "original", computation)
    assert shared[0] - alone[0] == pytest.approx(1e6, rel=1e-3)
    with pytest.raises(CannotSay, match="logp or overhead"):
        fft_time(costs(2), 4, 16, "original", computation)


@pytest.mark.parametrize(
    ("ranks", "dimensions", "parts"),
    [
        (1, 2, (1, 1)),
        (2, 2, (2, 1)),
        (6, 2, (3, 2)),
        (7, 2, (7, 1)),
        (8, 2, (4, 2)),
        (8, 3, (2, 2, 2)),
        (12, 3, (3, 2, 2)),
    ],
)
def test_ranks_are_divided_as_mpi_divides_them(ranks: int, dimensions: int, parts: tuple[int, ...]) -> None:
    assert divide(ranks, dimensions) == parts


def test_faces_of_a_grid_are_those_of_the_rank_with_most_neighbours() -> None:
    """The kernel's own records of `message_bytes` on 2, 4 and 6 ranks (tests/test_mpi_kernels.py) are the same."""
    assert Grid(2, 128).faces(2) == ((1024, 1),)
    assert Grid(2, 128).faces(8) == ((512, 2), (256, 1))
    assert Grid(3, 20).faces(4) == ((1600, 1), (1600, 1))
    assert Grid(2, 16, per_rank=True).faces(6) == ((128, 2), (128, 1))
    assert Grid.of("side_3d_per_rank", 5) == Grid(3, 5, per_rank=True)
    with pytest.raises(ValueError, match="8 ranks divide a side into 4 parts"):
        Grid(2, 3).faces(8)
    with pytest.raises(ValueError, match="no parameter"):
        Grid.of("order", 5)


def test_a_krylov_iteration_is_computation_a_halo_and_small_reductions() -> None:
    """On 8 ranks: two neighbours in one direction, one in the other, three rounds of a reduction."""
    grid, own = Grid(2, 128), np.full(len(costs().latency.draws), 100.0)
    times = {
        variant: krylov_time(costs(), 8, grid, variant, own, own / 4)[0][0]
        for variant in ("blocking", "overlapped", "one-reduction", "pipelined")
    }
    halo = 3 * ALPHA + BETA * (512 + 512 + 256)
    reduction, of_two = 3 * (ALPHA + BETA * 8), 3 * (ALPHA + BETA * 16)
    assert times["blocking"] == pytest.approx(100 + halo + (ALPHA + BETA * 256) + 2 * reduction)
    assert times["overlapped"] == pytest.approx(75 + halo + 2 * reduction)
    assert times["one-reduction"] == pytest.approx(75 + halo + of_two)
    assert times["pipelined"] == pytest.approx(75 + max(halo, of_two))
    hidden, sizes = krylov_time(costs(), 8, grid, "overlapped", own, own)
    assert hidden[0] == pytest.approx(100 + 2 * reduction) and sizes == (512.0, 256.0, 8.0)
    assert krylov_time(costs(), 1, grid, "blocking", own, own)[0][0] == 100


def test_interpolation_passes_through_what_was_measured_and_continues_beyond_it() -> None:
    law = curve(ALPHA, BETA)
    for size in (1, 1000, 65536, 1 << 24):
        assert law(size)[0] == pytest.approx(ALPHA + BETA * size, rel=1e-6)
    assert law.covers(1 << 22) and not law.covers((1 << 22) + 1)


@pytest.mark.parametrize(("sizes", "covered"), [((1, 4096), True), ((64, 4096), True), ((1024, 4096), False)])
def test_short_messages_are_covered_by_another_short_one_only(sizes: tuple[int, ...], covered: bool) -> None:
    law = Interpolated.through(Times(sizes, np.full((6, len(sizes)), 1.0)), np.random.default_rng(0))
    measured = TwoRankCosts(law)
    assert measured.covers(0) == measured.covers(8) == measured.covers(64) == covered
    assert measured.covers(2048) and not measured.covers(8192)
