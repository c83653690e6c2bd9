# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Rank 0 distributes small pieces of an integral to idle ranks; pickled messages of a few bytes to a few KiB."""

import math
import random

from mpi4py import MPI

PIECES = 3000
POINTS = 200
DIMENSIONS = 5


def volume_of(seed: int) -> list[float]:
    """Return for each dimension the share of random points of a cube that lie in its inscribed ball."""
    generator = random.Random(seed)
    inside = [0] * DIMENSIONS
    for _ in range(POINTS):
        square = 0.0
        for dimension in range(DIMENSIONS):
            square += generator.random() ** 2
            inside[dimension] += square <= 1
    return [count / POINTS for count in inside]


def master(world: MPI.Comm) -> None:
    """Send a piece for each answer; sum in the order of pieces, so that every run has the same sum."""
    started = MPI.Wtime()
    answers: dict[int, list[float]] = {}
    status = MPI.Status()
    sent, active_workers = 0, world.Get_size() - 1
    while active_workers:
        answer = world.recv(source=MPI.ANY_SOURCE, status=status)
        if answer is not None:
            answers[answer[0]] = answer[1]
        piece = sent if sent < PIECES else None
        sent += piece is not None
        active_workers -= piece is None
        world.send(piece, dest=status.Get_source())
    elapsed_s = MPI.Wtime() - started
    for dimension in range(DIMENSIONS):
        share = math.fsum(answers[piece][dimension] for piece in range(PIECES)) / PIECES
        exact = math.pi ** ((dimension + 1) / 2) / math.gamma((dimension + 1) / 2 + 1)
        print(f"ball of dimension {dimension + 1}: {share * 2 ** (dimension + 1):.12f}, exactly {exact:.12f}")
        error = abs(share * 2 ** (dimension + 1) / exact - 1)
        print("within 1 %" if error < 0.01 else f"WRONG by {error:.2%}")
    print(f"pieces done once each: {len(answers)}")
    print(f"farmed in {elapsed_s:.4f} s")


def worker(world: MPI.Comm) -> None:
    """Request pieces, compute them, and return results until there are no more."""
    world.send(None, dest=0)
    while (piece := world.recv(source=0)) is not None:
        world.send((piece, volume_of(piece)), dest=0)


if __name__ == "__main__":
    master(MPI.COMM_WORLD) if MPI.COMM_WORLD.Get_rank() == 0 else worker(MPI.COMM_WORLD)
