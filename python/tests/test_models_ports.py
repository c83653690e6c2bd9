# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Contention at ports agrees with a simulation of single frames that was written apart from it.

The oracle has frames, a window in frames for each pair, and an acknowledgement for every sixteenth frame, which takes
its own time on both links; the model has four pieces of a window and acknowledgements without a length.
"""

import random
from collections import deque

import numpy as np
import pytest

from barewire.models.collectives import ALGORITHMS
from barewire.models.costs import TwoRankCosts
from barewire.models.interpolation import Interpolated
from barewire.models.kernels import Grid, fft_time, krylov_time, radix_time
from barewire.models.ports import Ports, excess
from barewire.models.times import Times

WINDOW, ACKNOWLEDGED = 63, 16
ACKNOWLEDGEMENT = 0.05  # of a frame's time


def frames_simulated(ranks: int, frames: int, seed: int, *, in_step: bool = False) -> float:
    """Return the time until all frames have arrived, in frames, advancing in steps of an acknowledgement's time."""
    generator = random.Random(seed)
    peers = {rank: [rank ^ step for step in range(1, ranks)] for rank in range(ranks)}
    if not in_step:
        for order in peers.values():
            generator.shuffle(order)
    left = {(rank, to): frames for rank in range(ranks) for to in peers[rank]}
    flying, arrived = dict.fromkeys(left, 0), dict.fromkeys(left, 0)
    # Links to the switch, then from it: what waits, with its remaining time. Acknowledgements have a count.
    links = [[deque[list[float]]() for _ in range(ranks)] for _ in range(2)]
    now, missing = 0.0, len(left) * frames

    def offer(rank: int) -> None:
        for to in peers[rank]:
            while left[rank, to] and flying[rank, to] < WINDOW:
                left[rank, to] -= 1
                flying[rank, to] += 1
                links[0][rank].append([1.0, rank, to, 0])

    for rank in range(ranks):
        offer(rank)
    while missing:
        now += ACKNOWLEDGEMENT
        # The second links first: what leaves a first link is on the second one from the next step on.
        for stage in (1, 0):
            for link in links[stage]:
                if not link:
                    continue
                link[0][0] -= ACKNOWLEDGEMENT
                if link[0][0] > 1e-9:
                    continue
                _, source, target, count = link.popleft()
                sender, receiver = int(source), int(target)
                if stage == 0:
                    links[1][receiver].append([ACKNOWLEDGEMENT if count else 1.0, sender, receiver, count])
                elif count:
                    flying[receiver, sender] -= int(count)
                    offer(receiver)
                else:
                    missing -= 1
                    arrived[sender, receiver] += 1
                    due = arrived[sender, receiver] % ACKNOWLEDGED
                    if due == 0 or arrived[sender, receiver] == frames:
                        links[0][receiver].append([ACKNOWLEDGEMENT, receiver, sender, due or ACKNOWLEDGED])
    return now - 1


@pytest.mark.parametrize(("ranks", "frames"), [(4, 16), (4, 63), (4, 126), (4, 252), (8, 16), (8, 63), (8, 126)])
def test_uncoordinated_senders_take_as_long_as_simulated_frames(ranks: int, frames: int) -> None:
    ideal = (ranks - 1) * frames
    simulated = sum(frames_simulated(ranks, frames, seed) for seed in range(4)) / 4 / ideal
    window = min(frames, WINDOW)
    modelled = 1 + excess(ranks, frames / window) * window / ideal
    assert simulated > 1.1
    assert modelled == pytest.approx(simulated, rel=0.08)


def test_senders_in_step_leave_no_port_idle() -> None:
    """So the oracle's excess, and the model's, is that of the order."""
    assert frames_simulated(8, 63, 0, in_step=True) / (7 * 63) < 1.05


def test_two_ranks_do_not_contend_and_more_do_the_longer_the_more_there_are() -> None:
    ports = Ports(100e6, 1500)
    assert ports.contention_us(2, 1 << 20) == ports.contention_us(8, 0) == 0
    waits = [ports.contention_us(ranks, 1 << 18) for ranks in (3, 4, 6, 8, 16, 64)]
    assert waits == sorted(waits) and waits[0] > 0
    # A small window in flight mixes the senders' messages finely.
    assert ports.contention_us(8, 1 << 18, 8192) < ports.contention_us(8, 1 << 18) / 3
    # Longer messages wait for a bounded number of windows.
    assert ports.contention_us(8, 1 << 24) == ports.contention_us(8, 1 << 22)
    with pytest.raises(ValueError, match="above 0"):
        Ports(0, 1500).contention_us(4, 1000)


def test_only_kernels_in_which_all_send_to_all_at_once_contend() -> None:
    """Times on a link of 100 Mb/s with and without ports: what waits is what `contention_us` says."""
    sizes = tuple(2**n for n in range(0, 23))
    law = Interpolated.through(Times(sizes, np.tile(50 + 0.09 * np.asarray(sizes), (6, 1))), np.random.default_rng(0))
    alone, ports = TwoRankCosts(law), Ports(100e6, 1500)
    contended = TwoRankCosts(law, ports=ports)
    none = np.zeros(len(law.draws))
    block = 16 * 2**20 // 64

    def added(time: object) -> float:
        with_ports, without = time(contended), time(alone)  # type: ignore[operator]
        return float(with_ports[0] - without[0])

    whole = ports.contention_us(8, block)
    assert whole > 0.1 * 7 * ports.message_us(block)
    assert added(lambda costs: fft_time(costs, 8, 20, "original", none)[0]) == pytest.approx(3 * whole)
    assert 0 < added(lambda costs: fft_time(costs, 8, 20, "non-blocking", none)[0]) < whole
    sorted_keys = added(lambda costs: radix_time(costs, 8, 524288, 16384, none)[0])
    assert sorted_keys == pytest.approx(4 * ports.contention_us(8, 524288 * 4 / 8, 16384))
    by_name = {each.name: each for each in ALGORITHMS["alltoall"]}
    assert added(lambda costs: by_name["all at once"].time(costs, 8, block)) == pytest.approx(whole)
    assert added(lambda costs: by_name["pairwise exchange"].time(costs, 8, block)) == 0


def test_nothing_is_sent_faster_than_a_link_carries_it() -> None:
    """A lab's link may let single frames pass at once; many in a row take their time."""
    sizes = (8, 1024, 65536)
    free = Interpolated.through(Times(sizes, np.full((6, 3), 5.0)), np.random.default_rng(0))
    ports = Ports(100e6, 1500)
    costs = TwoRankCosts(free, ports=ports)
    assert costs.one_way(65536)[0] == 5.0
    assert costs.sustained(65536)[0] == pytest.approx(ports.message_us(65536)) and ports.message_us(65536) > 5243
    grid, none = Grid(2, 1024), np.zeros(len(free.draws))
    # Of 4 ranks each has two neighbours; two reductions of two rounds have frames of the smallest length.
    iteration = krylov_time(costs, 4, grid, "blocking", none, none)[0][0]
    assert iteration == pytest.approx(2 * ports.message_us(4096) + 4 * 84 * 8 / 100)
