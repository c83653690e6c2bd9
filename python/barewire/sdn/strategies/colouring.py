# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Edge colouring of bipartite multigraphs: as many colours as the largest degree suffice (König 1916)."""

from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence

Edge = tuple[Hashable, Hashable]


def colour_edges(edges: Sequence[Edge], colours: int) -> list[int]:
    """Return a colour (0 to `colours` - 1) for each edge, so that edges that meet at a vertex differ.

    Names of the two sides are separate: ('a', 'a') joins two vertices. An edge gets a colour that is free at its left
    end; if it is used at the right end, the two-coloured path that begins there swaps its colours first.
    ValueError if a vertex has more edges than there are colours.
    """
    for side in (0, 1):
        if max(Counter(edge[side] for edge in edges).values(), default=0) > colours:
            raise ValueError(f"a vertex has more than {colours} edges; take as many colours as its edges")
    # For each vertex, the edge with each colour.
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


def colour_evenly(edges: Sequence[Edge], groups: Sequence[Hashable], colours: int) -> list[int]:
    """Return a colour for each edge, so that each vertex's edges are evenly spread over the colours.

    Each vertex is split into vertices of at most `colours` edges, which are then coloured (de Werra 1971, equitable
    colouring). Edges of one group are kept in the same part if possible, so that they have different colours; groups
    fill remaining space by first fit, the largest group first, then in the order of the edges.
    """
    sizes: Counter[tuple[int, Hashable, Hashable]] = Counter()
    for edge, group in zip(edges, groups, strict=True):
        for side in (0, 1):
            sizes[side, edge[side], group] += 1
    rank = {group: number for number, group in enumerate(dict.fromkeys(groups))}
    parts: dict[tuple[int, Hashable, Hashable], list[int]] = {}
    room: defaultdict[tuple[int, Hashable], list[int]] = defaultdict(list)
    for key in sorted(sizes, key=lambda key: (-sizes[key], rank[key[2]])):
        parts[key] = _fit(room[key[:2]], sizes[key], colours)
    cut: list[Edge] = []
    for edge, group in zip(edges, groups, strict=True):
        left, right = ((edge[side], parts[side, edge[side], group].pop(0)) for side in (0, 1))
        cut.append((left, right))
    return colour_edges(cut, colours)


def _fit(room: list[int], size: int, colours: int) -> list[int]:
    """The parts of a group's edges: full parts of `colours`, the rest in the first part with space for it."""
    parts: list[int] = []
    while size > 0:
        piece = min(size, colours)
        fitting = [number for number, free in enumerate(room) if free >= piece]
        number = fitting[0] if fitting else len(room)
        if not fitting:
            room.append(colours)
        room[number] -= piece
        parts += [number] * piece
        size -= piece
    return parts


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
