# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A gate for readers: lines of a terminal, and a comment on a merge request in GitHub's Markdown."""

from collections.abc import Iterable, Sequence

from barewire.report.gate import Gate, GateRow
from barewire.report.words import percent

_LISTED_MAX = 20


def gate_lines(gate: Gate) -> list[str]:
    """The slower rows, the undecided ones with the reason, and the counts."""
    lines = [f"slower: {row.label}: {row.numbers}" for row in gate.of("slower")]
    undecided = gate.of("undecided")
    lines += [f"undecided: {row.label}: {row.numbers}: {row.reason}" for row in undecided[:_LISTED_MAX]]
    if len(undecided) > _LISTED_MAX:
        lines.append(f"undecided: and {len(undecided) - _LISTED_MAX} more")
    return [*lines, f"gate {'passed' if gate.passed else 'failed'}: {gate.summary}"]


def gate_markdown(gate: Gate, *, a: str, b: str, notes: Iterable[str]) -> str:
    """The comment: the counts, slower rows, notes such as the floor's, and the other rows folded."""
    verdict = "✅ no slowdown beyond doubt" if gate.passed else "❌ slower"
    lines = [f"### Performance: {verdict}", "", f"`{_escape(a)}` against `{_escape(b)}`: {gate.summary}.", ""]
    if slower := gate.of("slower"):
        lines += [*_table(slower), ""]
    lines += [f"- {_escape(note)}" for note in notes]
    for title, rows in (("undecided", gate.of("undecided")), ("surely not slower", gate.of("kept"))):
        if rows:
            lines += ["", f"<details><summary>{len(rows)} {title}</summary>", "", *_table(rows), "", "</details>"]
    return (
        "\n".join(lines) + f"\n\nSlowdown: time of `{_escape(a)}` divided by that of `{_escape(b)}`, for rates the "
        f"inverse, with its {percent(gate.confidence)} interval.\n"
    )


def _table(rows: Sequence[GateRow]) -> list[str]:
    with_reason = any(row.reason for row in rows)
    lines = [f"| row | slowdown |{' why |' if with_reason else ''}", f"|---|--:|{'---|' if with_reason else ''}"]
    for row in rows:
        numbers = row.numbers + (" by floors" if row.normalised else "")
        lines.append(f"| {_escape(row.label)} | {numbers} |{f' {_escape(row.reason)} |' if with_reason else ''}")
    return lines


def _escape(text: str) -> str:
    """Names come from files: no new line, cell or tag may begin in them."""
    for sign, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("|", "&#124;"), ("`", "&#96;"), ("@", "&#64;")):
        text = text.replace(sign, entity)
    return " ".join(text.split())
