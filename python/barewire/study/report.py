# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A study's findings in words: for the terminal, as Markdown and as JSON."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, get_args

from rich.console import Console
from rich.text import Text

from barewire.report.profile import TextTable
from barewire.report.words import bounds, number, p_value, percent, unit_name
from barewire.study.findings import Finding, Row, Verdict, column_in
from barewire.study.flaws import published_flaws
from barewire.study.plan import Claim, Plan
from barewire.study.shown import Shown
from barewire.study.steps import Record
from barewire.study.tables import rows_in_words

_STYLES = {"held": "green", "did not hold": "red", "cannot be decided": "yellow"}
_ORDER = get_args(Verdict)
# Kinds of claims whose ratios are in A's favour, whatever the quantity.
ABOVE_ONE_IS_BETTER = ("strategy", "alike")


def headline(findings: Sequence[Finding]) -> str:
    """What became of the claims, in one sentence."""
    counts = Counter(finding.verdict for finding in findings)
    said = [f"{counts[verdict]} {verdict}" for verdict in _ORDER if counts[verdict]]
    return f"Of {len(findings)} claim{'' if len(findings) == 1 else 's'} {', '.join(said)}."


def measured_when(plan: Plan, record: Record) -> str:
    """When the study was measured, by what, for how long, and at which confidence it is judged."""
    where = "labs on one machine" if record.hosts is None else record.hosts
    builds = "; ".join(record.builds) or "nothing"
    return (
        f"Measured on {record.created[:10]} on {where}, in the {record.form} form: {record.seconds / 60:.0f} minutes, "
        f"by {builds}. Intervals and verdicts are of {percent(plan.confidence)}."
    )


def left_out(record: Record) -> list[str]:
    """A sentence for each step that was not measured, or not wholly."""
    return [
        f"Step '{name}' {done.outcome}{': ' if done.state != 'done' else ' '}{done.reason}"
        for name, done in record.steps.items()
        if done.reason
    ]


def warnings(record: Record) -> list[str]:
    """What readers must know of how the study was measured: what is missing, and builds that differ."""
    builds = record.builds
    by = "; ".join(f"{', '.join(steps)} by {build}" for build, steps in builds.items())
    return left_out(record) + [f"Different builds of Barewire measured the steps: {by}"] * (len(builds) > 1)


def print_findings(console: Console, plan: Plan, findings: Sequence[Finding], record: Record) -> None:
    """Print each claim with its verdict and the reason."""
    console.print(Text(plan.title, style="bold"), Text(f"{plan.source}\n", style="dim"))
    for finding in findings:
        console.print(
            Text(f"{finding.verdict}: ", style=_STYLES[finding.verdict]).append(finding.claim.text, style="default")
        )
        console.print(Text(f"  {finding.why}", style="dim"))
    for sentence in [*published_flaws(plan), *warnings(record)]:
        console.print(Text(sentence, style="yellow"))
    console.print(Text(f"\n{headline(findings)}", style="bold"))


def table_of(finding: Finding) -> TextTable:
    """Published values beside today's, one row for each of the claim's rows."""
    rows = finding.rows
    names = finding.names
    has_published = any(value is not None for row in rows for value in row.published)
    is_pair = any(len(row.measured) == 2 for row in rows)
    has_difference = any(row.difference is not None for row in rows)
    headings = [""]
    if has_published:
        sides = [f"published: {name}" for name in _sides(finding)]
        headings += [*sides, "published ratio"] if is_pair else sides
        headings += ["published difference"] if finding.claim.interval else []
        headings += ["published p"] if finding.claim.p else []
    unit = unit_name(rows[0].unit) if rows else ""
    if is_pair:
        headings += [f"{name}, {unit}" for name in names]
        headings.append("ratio (above 1 is better)" if finding.claim.kind in ABOVE_ONE_IS_BETTER else "ratio")
    elif finding.claim.kind in ("impossible", "bytes"):
        headings.append(f"{'the wire’s time' if finding.claim.kind == 'impossible' else 'today'}, {unit}")
    else:
        headings.append(f"today, {unit}".removesuffix(", "))
    headings += ["difference of means", "p"] if has_difference else []
    headings.append("verdict")
    body = tuple(_cells(finding.claim, row, has_published, is_pair, has_difference) for row in rows)
    return TextTable(finding.claim.text, _caption(finding), tuple(headings), body)


def _sides(finding: Finding) -> Sequence[str]:
    claim = finding.claim
    if claim.kind == "bytes":
        return ("expected",)
    if claim.kind in ABOVE_ONE_IS_BETTER:
        return finding.names
    if claim.kind == "impossible":
        return finding.names[:1]
    unit = finding.rows[0].unit if finding.rows else ""
    of_side = [""] * len(claim.columns)
    if len(claim.only) > 1:
        of_side = [f"{rows_in_words(wanted)}, " for wanted in claim.only]
    return tuple(f"{of}{column_in(unit, column)}" for of, column in zip(of_side, claim.columns, strict=True))


def _cells(claim: Claim, row: Row, has_published: bool, is_pair: bool, has_difference: bool) -> tuple[str, ...]:
    cells = [row.label]
    if has_published:
        width = 2 if is_pair else 1
        values = [*row.published, None, None][:width]
        cells += ["–" if value is None else f"{value:.0f}" if value >= 1e4 else f"{value:.4g}" for value in values]
        cells += [number(row.published_ratio)] if is_pair else []
        if claim.interval:
            cells.append(f"{number(row.published_difference)} {bounds(row.published_interval)}".rstrip())
        cells += [row.published_p or "–"] if claim.p else []
    if is_pair:
        cells += [number(value, 4) for value in row.measured]
        cells.append(f"{number(row.ratio)} {bounds(row.interval)}".rstrip())
    else:
        cells.append(f"{number(row.measured[0], 4)} {bounds(row.interval)}".rstrip())
    if has_difference:
        cells.append(f"{number(row.difference)} {bounds(row.difference_interval)}".rstrip())
        cells.append("–" if row.p is None else p_value(row.p))
    return (*cells, row.says)


def _caption(finding: Finding) -> str:
    table = finding.claim.table
    return " ".join(part for part in (finding.why, "" if table is None else f"Published: {table.source}") if part)


def markdown(plan: Plan, findings: Sequence[Finding], record: Record, tables: Sequence[Shown]) -> str:
    """The study as Markdown, with the tables of its steps."""
    lines = [f"# {plan.title}", "", plan.question, "", f"Source: {plan.source}.", "", headline(findings), ""]
    lines += [measured_when(plan, record), ""]
    lines += [f"- {sentence}" for sentence in warnings(record)]
    for finding in findings:
        lines += ["", f"## {finding.claim.text}", "", f"**{finding.verdict.capitalize()}.** {finding.why}", ""]
        lines += [finding.claim.note, ""] if finding.claim.note else []
        if finding.rows:
            lines += _markdown_table(table_of(finding))
    for each in tables:
        lines += ["", f"## {each.title}", *(["", each.explanation] if each.explanation else [])]
        for table in each.tables:
            lines += ["", f"### {table.title}", "", *_markdown_table(table)]
            lines += ["", table.caption] if table.caption else []
    if flaws := published_flaws(plan):
        lines += ["", "## What does not add up in the published tables", "", *(f"- {flaw}" for flaw in flaws)]
    lines += ["", "## Steps", "", *_markdown_table(_steps(plan, record))]
    return "\n".join(lines) + "\n"


def _steps(plan: Plan, record: Record) -> TextTable:
    what = {step.name: step.what for step in plan.steps}
    rows = [(name, what.get(name, ""), done.state, f"{done.seconds:.0f}") for name, done in record.steps.items()]
    return TextTable("Steps", "", ("step", "what it measures", "", "s"), tuple(rows))


def _markdown_table(table: TextTable) -> list[str]:
    separator = f"|{' --- |' * len(table.headings)}"
    return [f"| {' | '.join(table.headings)} |", separator, *(f"| {' | '.join(row)} |" for row in table.rows)]


def document(plan: Plan, findings: Sequence[Finding], record: Record, tables: Sequence[Shown]) -> Mapping[str, Any]:
    """The study as one JSON object; tables of steps are numbers for `bench host`, others as they are shown."""
    return {
        "study": plan.name,
        "title": plan.title,
        "source": plan.source,
        "form": record.form,
        "confidence": plan.confidence,
        "seconds": round(record.seconds, 1),
        "steps": {name: asdict(done) for name, done in record.steps.items()},
        "hosts": {each.step: [asdict(measure) for measure in each.measures] for each in tables if each.measures},
        "tables": [
            {"step": each.step, "kind": each.kind, "tables": [asdict(table) for table in each.tables]}
            for each in tables
            if not each.measures
        ],
        "published_flaws": published_flaws(plan),
        "claims": [
            {
                "text": finding.claim.text,
                "verdict": finding.verdict,
                "why": finding.why,
                "sides": list(finding.names),
                "rows": [asdict(row) for row in finding.rows],
            }
            for finding in findings
        ],
    }
