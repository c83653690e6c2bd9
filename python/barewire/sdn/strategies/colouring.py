# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Edge colouring of bipartite multigraphs: as many colours as the largest degree are enough (König 1916)."""

from collections import Counter
from collections.abc import Hashable, Sequence

Edge = tuple[Hashable, Hashable]


def colour_edges(edges: Sequence[Edge], colours: int) -> list[int]:
    """Return a colour (0 to `colours` - 1) for each edge, so that edges that meet at a vertex differ.

    The sides' names are apart: ('a', 'a') joins two vertices. An edge gets a colour that is free at its left end; if
    that is taken at the right end, the two-coloured path that begins there swaps its colours first.
    ValueError if a vertex has more edges than there are colours.
    """
    for side in (0, 1):
        if max(Counter(edge[side] for edge in edges).values(), default=0) > colours:
            raise ValueError(f"a vertex has more than {colours} edges; take as many colours as its edges")
    # Of each vertex, the edge that has a colour there.
    at: dict[tuple[int, Hashable], list[int | None]] = {
        (side, edge[side]): [None] * colours for edge in edges for side in (0, 1)
    }
    colour_of = [0] * len(edges)
    for number, (left, right) in enumerate(edges):
        free_left = at[0, left].index(None)
        free_right = at[1, right].index(None)
        if at[1, right][free_left] is not None:
            _swap(edges, at, colour_of, right, free_left, free_right)
        colour_of[number] = free_left
        at[0, left][free_left] = at[1, right][free_left] = number
    return colour_of


def colour_evenly(edges: Sequence[Edge], weights: Sequence[float], colours: int) -> list[int]:
    """Return a colour for each edge, so that each vertex's edges and weight are spread over the colours evenly.

    Each vertex is cut into vertices of `colours` edges of similar weight, which are then coloured apart: so a vertex
    of degree d has at most ⌈d / colours⌉ edges of a colour. Source: de Werra 1971 (equitable colouring).
    """
    order = sorted(range(len(edges)), key=lambda number: -weights[number])
    seen: Counter[tuple[int, Hashable]] = Counter()
    cut: list[Edge] = []
    for number in order:
        left, right = edges[number]
        cut.append(((left, seen[0, left] // colours), (right, seen[1, right] // colours)))
        seen[0, left] += 1
        seen[1, right] += 1
    chosen = [0] * len(edges)
    for number, colour in zip(order, colour_edges(cut, colours), strict=True):
        chosen[number] = colour
    return chosen


def _swap(
    edges: Sequence[Edge],
    at: dict[tuple[int, Hashable], list[int | None]],
    colour_of: list[int],
    right: Hashable,
    first: int,
    second: int,
) -> None:
    """Swap two colours along the path that leaves a right vertex with the first; it cannot end at the new edge."""
    path: list[int] = []
    side, vertex, colour = 1, right, first
    while (number := at[side, vertex][colour]) is not None:
        path.append(number)
        side = 1 - side
        vertex = edges[number][side]
        colour = second if colour == first else first
    for number in path:
        for end in (0, 1):
            at[end, edges[number][end]][colour_of[number]] = None
    for number in path:
        colour_of[number] = second if colour_of[number] == first else first
        for end in (0, 1):
            at[end, edges[number][end]][colour_of[number]] = number
