# SPDX-License-Identifier: Apache-2.0 OR MIT
"""From launches to rows: Barewire's time as a share of the other fabric's, worst first; as JSON and as Markdown."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import geometric_mean, median
from typing import Any

from barewire.applications.application import Application, Figure
from barewire.applications.campaign import Launch, Plan, Skipped
from barewire.applications.sites import Site
from barewire.errors import MeasurementFailed
from barewire.stats import compare_over_sizes, median_interval

SCHEMA = "barewire-applications/1"
Interval = tuple[float, float]


@dataclass(frozen=True)
class Row:
    """One figure of a program at a site.

    `ratio` is Barewire's time by the other's, or for rates the other's by Barewire's: below 1 Barewire is faster.
    `values` and medians are in `unit`, Barewire's first; intervals are of 95 %, None below 6 launches.
    """

    site: str
    application: str
    figure: str
    unit: str
    rival: str
    values: tuple[tuple[float, ...], tuple[float, ...]]
    medians: tuple[float, float]
    medians_ci95: tuple[Interval | None, Interval | None]
    ratio: float
    ratio_ci95: Interval | None
    verdict: str


@dataclass(frozen=True)
class Results:
    """Everything of one run."""

    plan: Plan
    environment: Mapping[str, Any]
    launches: tuple[Launch, ...]
    skipped: tuple[Skipped, ...]
    versions: Mapping[str, str]

    @property
    def rows(self) -> list[Row]:
        """All rows, the slowest first."""
        found = [row for site in self.plan.sites for row in rows_of(self.plan.applications, site, self.launches)]
        return sorted(found, key=lambda row: row.ratio, reverse=True)

    @property
    def failures(self) -> list[Launch]:
        """Launches without figures, warm-ups included."""
        return [one for one in self.launches if one.error is not None]

    def document(self) -> dict[str, Any]:
        """Everything, as plain JSON."""
        plan = self.plan
        return {
            "schema": SCHEMA,
            "parameters": {
                "applications": [one.name for one in plan.applications],
                "sites": [site.name for site in plan.sites],
                "launches": plan.launches,
                "seed": plan.seed,
                "busy_per_core": plan.busy,
                "limit_s": plan.limit_s,
            },
            "environment": dict(self.environment),
            "packages": dict(self.versions),
            "rows": [asdict(row) for row in self.rows],
            "geometric_means": geometric_means(self.rows),
            "failures": [asdict(one) for one in self.failures],
            "skipped": [asdict(one) for one in self.skipped],
            "launches": [asdict(one) for one in self.launches],
        }


def rows_of(applications: Sequence[Application], site: Site, launches: Sequence[Launch]) -> list[Row]:
    """One row for each figure of which both fabrics have launches; warm-ups are left out."""
    subjects: list[tuple[Application, Figure]] = []
    values: list[tuple[tuple[float, ...], tuple[float, ...]]] = []
    for application in applications:
        for figure in application.figures:
            ours, theirs = (
                tuple(
                    one.figures[figure.name]
                    for one in launches
                    if (one.site, one.application, one.fabric) == (site.name, application.name, fabric)
                    and one.round > 0
                    and one.error is None
                )
                for fabric in site.fabrics
            )
            if ours and theirs:
                subjects.append((application, figure))
                values.append((ours, theirs))
    pairs = [
        (ours, theirs) if figure.lower_is_better else (theirs, ours)
        for (_, figure), (ours, theirs) in zip(subjects, values, strict=True)
    ]
    rows = []
    for (application, figure), both, compared in zip(
        subjects, values, compare_over_sizes(pairs, lower_is_better=True), strict=True
    ):
        ours, theirs = both
        # A rate's pair is turned round, so that the first is the one whose smaller value means that Barewire is faster.
        verdict = {"A faster": "Barewire faster", "B faster": f"{site.rival} faster"}
        rows.append(
            Row(
                site=site.name,
                application=application.name,
                figure=figure.name,
                unit=figure.unit,
                rival=site.rival,
                values=both,
                medians=(median(ours), median(theirs)),
                medians_ci95=(median_interval(ours), median_interval(theirs)),
                ratio=compared.ratio,
                ratio_ci95=compared.ratio_ci95,
                verdict=verdict.get(compared.verdict, compared.verdict),
            )
        )
    return rows


def geometric_means(rows: Sequence[Row]) -> dict[str, float]:
    """Of each site, the mean over programs; a program's several figures count together as one."""
    means = {}
    for site in dict.fromkeys(row.site for row in rows):
        here = [row for row in rows if row.site == site]
        programs = dict.fromkeys(row.application for row in here)
        means[site] = geometric_mean(
            geometric_mean(row.ratio for row in here if row.application == program) for program in programs
        )
    return means


def markdown(results: Results) -> str:
    """The table for a README: one for all sites, the slowest row first, then means, failures and what was skipped."""
    what = {one.name: one for one in results.plan.applications}
    where = {site.name: site.what for site in results.plan.sites}
    lines = [
        "| program | what it is | hosts | TCP | Barewire | Barewire's time by TCP's |",
        "|---|---|---|---|---|---|",
    ]
    for row in results.rows:
        one = what[row.application]
        program = row.application if len(one.figures) == 1 else f"{row.application}: {row.figure}"
        # On one host the other is no TCP.
        theirs = number(row.medians[1]) + ("" if row.rival == "tcp" else f" ({row.rival})")
        cells = [program, one.what, where[row.site], f"{theirs} {row.unit}", f"{number(row.medians[0])} {row.unit}"]
        lines.append(f"| {' | '.join(cells)} | {ratio_text(row)} |")
    means = ", ".join(f"{where[site]} {mean:.2f}" for site, mean in geometric_means(results.rows).items())
    lines += ["", f"Geometric mean over programs: {means or 'nothing was measured'}."]
    if results.failures:
        failed = ", ".join(sorted({f"{one.application} over {one.fabric} ({one.site})" for one in results.failures}))
        lines += ["", f"**Failed**: {failed}."]
    if results.skipped:
        lines += ["", f"Skipped: {', '.join(one.application for one in results.skipped)}."]
    return "\n".join(lines) + "\n"


def ratio_text(row: Row) -> str:
    """The ratio, with its interval where there were launches enough."""
    interval = "" if row.ratio_ci95 is None else f" [{row.ratio_ci95[0]:.2f}, {row.ratio_ci95[1]:.2f}]"
    return f"{row.ratio:.2f}{interval}"


def number(value: float) -> str:
    """Three significant digits."""
    if not value > 0:
        raise MeasurementFailed(f"a figure is {value}, where all are above 0")
    return f"{value:.3g}" if value < 1000 else f"{value:.0f}"
