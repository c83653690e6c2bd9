# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The accounts of a capture as a page: bytes by phase and layer."""

from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from barewire.account.accounts import Accounts
from barewire.account.frame import Layers
from barewire.account.ledger import Phase
from barewire.report.account import LAYER_NAMES, percent_of, summary
from barewire.report.answer import Answer
from barewire.report.figures import INK, Figure, colour_by_number, hatch, layout_of, plain_axis, rows_px
from barewire.report.html import page
from barewire.report.profile import TextTable


def render_account(accounts: Accounts, command: str) -> str:
    """The page of a capture's accounts."""
    first, *more = summary(accounts).splitlines()
    name = PurePath(accounts.capture).name
    part = {
        "id": "numbers",
        "title": "All numbers",
        "explanation": "",
        "figures": [],
        "tables": [
            ("Bytes by layer and phase", layers_table(accounts.to_json(typical=0))),
            ("Pairs of hosts, most bytes first", _pairs(accounts)),
        ],
    }
    title, caption = "Bytes by phase and layer", "Bytes on the wire, with preamble, FCS and gap."
    figure = phases_figure(accounts)
    question = "Where did the bytes go?"
    answer = Answer(question, first, tuple(more), title, caption, figure) if figure["data"] else Answer(question, first)
    return page(
        "account.html.j2",
        answer=answer,
        capture=name,
        frames=accounts.total.frames,
        warnings=accounts.notes,
        parts=[part],
        command=command,
    )


def phases_figure(accounts: Accounts) -> Figure:
    """A stacked bar for each phase that has frames: the bytes of each layer."""
    phases = [phase for phase in Phase if accounts.of_phase(phase).frames]
    traces: list[dict[str, Any]] = []
    for number, name in enumerate(LAYER_NAMES):
        values = [accounts.of_phase(phase).layers[number] for phase in phases]
        if any(values):
            place = len(traces)
            line = {"color": INK, "width": 0.5}
            traces.append(
                {
                    **{"type": "bar", "orientation": "h", "name": name, "x": values},
                    "y": [phase.value for phase in phases],
                    "marker": {"color": colour_by_number(place), "line": line, "pattern": hatch(place)},
                    "hovertemplate": f"{name}: %{{x}} B<extra></extra>",
                }
            )
    layout = layout_of(plain_axis("bytes"), {**plain_axis(""), "type": "category", "autorange": "reversed"})
    return {"data": traces, "layout": layout | {"barmode": "stack"}, "height_px": rows_px(len(phases), 3)}


def layers_table(document: Mapping[str, Any]) -> TextTable:
    """Bytes and frames by layer and phase; `document` is that of the accounts."""
    phases, total = document["phases"], document["total"]
    totals = [*phases.values(), total]
    rows = [
        (name, *(str(each["layers_bytes"][layer]) for each in totals))
        for layer, name in zip(Layers._fields, LAYER_NAMES, strict=True)
        if total["layers_bytes"][layer]
    ]
    rows.append(("on the wire", *(str(each["wire_bytes"]) for each in totals)))
    rows.append(("frames", *(str(each["frames"]) for each in totals)))
    rows.append(("efficiency", *(percent_of(each["efficiency"]) for each in totals)))
    return TextTable("Bytes by layer and phase", "", ("layer", *phases, "total"), tuple(rows))


def _pairs(accounts: Accounts) -> TextTable:
    rows = [
        (
            f"{source} to {target}",
            *(str(n) for n in (found.frames, found.wire_bytes, found.layers.payload, found.layers.repeated)),
            percent_of(found.efficiency),
        )
        for source, target, found in accounts.pairs()
    ]
    return TextTable("Pairs", "", ("pair", "frames", "on the wire", "payload", "repeated", "efficiency"), tuple(rows))
