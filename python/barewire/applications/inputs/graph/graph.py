# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Breadth-first searches of a random graph, whose vertices are dealt out: an all-to-all of lists at each level."""

import random
from collections import defaultdict

from mpi4py import MPI

VERTICES = 20_000
NEIGHBOURS = 4
SEARCHES = 10


def edges() -> list[tuple[int, int]]:
    """The same graph on every rank: a ring, so that it is connected, and random chords."""
    drawn = random.Random(1)
    chords = [(vertex, drawn.randrange(VERTICES)) for vertex in range(VERTICES) for _ in range(NEIGHBOURS // 2)]
    return chords + [(vertex, (vertex + 1) % VERTICES) for vertex in range(VERTICES)]


def search(world: MPI.Comm, near: dict[int, list[int]], root: int) -> dict[int, int]:
    """The distance of each vertex that this rank has."""
    rank, size = world.Get_rank(), world.Get_size()
    distances: dict[int, int] = {}
    front, level = [root] if root % size == rank else [], 0
    while world.allreduce(len(front)):
        found: list[list[int]] = [[] for _ in range(size)]
        for vertex in front:
            if vertex not in distances:
                distances[vertex] = level
                for other in near[vertex]:
                    found[other % size].append(other)
        front = [vertex for part in world.alltoall(found) for vertex in part if vertex not in distances]
        level += 1
    return distances


def main() -> None:
    """Search from some vertices; check what makes distances right: no edge joins two that differ by more than one."""
    world = MPI.COMM_WORLD
    rank, size = world.Get_rank(), world.Get_size()
    joined = edges()
    near: dict[int, list[int]] = defaultdict(list)
    for one, other in joined:
        for vertex, neighbour in ((one, other), (other, one)):
            if vertex % size == rank:
                near[vertex].append(neighbour)
    roots = random.Random(2).sample(range(VERTICES), SEARCHES)
    world.barrier()
    began = MPI.Wtime()
    found = [search(world, near, root) for root in roots]
    world.barrier()
    took = MPI.Wtime() - began
    for root, mine in zip(roots, found, strict=True):
        parts = world.gather(mine)
        if parts is None:
            continue
        distances = {vertex: distance for part in parts for vertex, distance in part.items()}
        whole = len(distances) == VERTICES and distances[root] == 0
        smooth = whole and all(abs(distances[one] - distances[other]) <= 1 for one, other in joined)
        print(f"search from {root}: sum of distances {sum(distances.values())}, {'valid' if smooth else 'WRONG'}")
    if rank == 0:
        print(f"searched in {took:.4f} s")


if __name__ == "__main__":
    main()
