# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Breadth-first searches of a random graph distributed over ranks: an all-to-all of lists at each level."""

import random
from collections import defaultdict

from mpi4py import MPI

VERTICES = 20_000
NEIGHBOURS = 4
SEARCHES = 10


def edges() -> list[tuple[int, int]]:
    """Return the same graph on every rank: a ring, so that it is connected, and random chords."""
    generator = random.Random(1)
    chords = [(vertex, generator.randrange(VERTICES)) for vertex in range(VERTICES) for _ in range(NEIGHBOURS // 2)]
    return chords + [(vertex, (vertex + 1) % VERTICES) for vertex in range(VERTICES)]


def search(world: MPI.Comm, adjacent: dict[int, list[int]], root: int) -> dict[int, int]:
    """Return the distance of each vertex of this rank."""
    rank, size = world.Get_rank(), world.Get_size()
    distances: dict[int, int] = {}
    frontier, level = [root] if root % size == rank else [], 0
    while world.allreduce(len(frontier)):
        found: list[list[int]] = [[] for _ in range(size)]
        for vertex in frontier:
            if vertex not in distances:
                distances[vertex] = level
                for neighbour in adjacent[vertex]:
                    found[neighbour % size].append(neighbour)
        frontier = [vertex for part in world.alltoall(found) for vertex in part if vertex not in distances]
        level += 1
    return distances


def main() -> None:
    """Search from several vertices; check that no edge joins vertices whose distances differ by more than one."""
    world = MPI.COMM_WORLD
    rank, size = world.Get_rank(), world.Get_size()
    all_edges = edges()
    adjacent: dict[int, list[int]] = defaultdict(list)
    for first, second in all_edges:
        for vertex, neighbour in ((first, second), (second, first)):
            if vertex % size == rank:
                adjacent[vertex].append(neighbour)
    roots = random.Random(2).sample(range(VERTICES), SEARCHES)
    world.barrier()
    started = MPI.Wtime()
    found = [search(world, adjacent, root) for root in roots]
    world.barrier()
    elapsed_s = MPI.Wtime() - started
    for root, own_distances in zip(roots, found, strict=True):
        parts = world.gather(own_distances)
        if parts is None:
            continue
        distances = {vertex: distance for part in parts for vertex, distance in part.items()}
        is_complete = len(distances) == VERTICES and distances[root] == 0
        is_valid = is_complete and all(abs(distances[first] - distances[second]) <= 1 for first, second in all_edges)
        print(f"search from {root}: sum of distances {sum(distances.values())}, {'valid' if is_valid else 'WRONG'}")
    if rank == 0:
        print(f"searched in {elapsed_s:.4f} s")


if __name__ == "__main__":
    main()
