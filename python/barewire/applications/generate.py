# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Generated inputs, identical in every run, and checks of programs' output files."""

import random
from pathlib import Path

from barewire.applications.application import CheckFailed, Outcome

GRID_SIDE = 200
PARTS = 16
_TAXA = 12
_SITES = 500
_SUBSTITUTIONS = 0.06
# Relative size of the largest part that PT-Scotch allows.
_IMBALANCE = 1.06


def grid_graph(folder: Path) -> None:
    """Write the graph of a square grid in Scotch's format."""
    side, lines, edges = GRID_SIDE, [], 0
    for row in range(side):
        for column in range(side):
            neighbours = ((row - 1, column), (row + 1, column), (row, column - 1), (row, column + 1))
            inside = [i * side + j for i, j in neighbours if 0 <= i < side and 0 <= j < side]
            edges += len(inside)
            lines.append(" ".join(map(str, [len(inside), *inside])))
    (folder / "grid.grf").write_text(f"0\n{side * side} {edges}\n0 000\n" + "\n".join(lines) + "\n")


def partition_is_fair(outcome: Outcome) -> None:
    """Check that every vertex of the grid is in one part, and that no part is larger than allowed."""
    try:
        count, *pairs = map(int, (outcome.folder / "grid.map").read_text().split())
        parts = dict(zip(pairs[::2], pairs[1::2], strict=True))
    except (OSError, ValueError) as error:
        raise CheckFailed(f"it wrote no partition to grid.map: {error}") from error
    if count != GRID_SIDE**2 or sorted(parts) != list(range(count)):
        raise CheckFailed(f"the partition names {len(parts)} vertices, of {GRID_SIDE**2}")
    sizes = [list(parts.values()).count(part) for part in range(PARTS)]
    if sum(sizes) != count or max(sizes) > _IMBALANCE * count / PARTS:
        raise CheckFailed(f"the parts have {sizes} vertices, more than {_IMBALANCE} times the average")
    cut = sum(
        parts[vertex] != parts[neighbour]
        for vertex in range(count)
        for neighbour in (vertex + 1, vertex + GRID_SIDE)
        if neighbour < count and not (neighbour == vertex + 1 and neighbour % GRID_SIDE == 0)
    )
    # A partition into four by four squares would cut 6 sides of the grid.
    if cut > 2 * 6 * GRID_SIDE:
        raise CheckFailed(f"the partition cuts {cut} edges, more than twice those of squares")


def alignment(folder: Path) -> None:
    """Write sequences along a random tree in PHYLIP's format."""
    generator = random.Random(1)
    sequences = [[generator.choice("ACGT") for _ in range(_SITES)]]
    while len(sequences) < _TAXA:
        parent = sequences.pop(0)
        sequences += [[_mutated(base, generator) for base in parent] for _ in range(2)]
    lines = [f"taxon{number:<5}{''.join(sequence)}" for number, sequence in enumerate(sequences)]
    (folder / "alignment.phy").write_text(f"{_TAXA} {_SITES}\n" + "\n".join(lines) + "\n")


def _mutated(base: str, generator: random.Random) -> str:
    return generator.choice("ACGT") if generator.random() < _SUBSTITUTIONS else base
