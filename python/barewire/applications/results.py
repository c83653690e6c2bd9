# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Derives rows from launches: ratio of Barewire's time to the other fabric's, worst first; as JSON and Markdown."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import geometric_mean, median
from typing import Any

from barewire.applications.application import Application, Figure
from barewire.applications.campaign import Launch, Plan, Skipped
from barewire.applications.sites import Site
from barewire.errors import MeasurementFailed
from barewire.stats.comparison import compare_over_sizes
from barewire.stats.intervals import median_interval

SCHEMA = "barewire-applications/1"
Interval = tuple[float, float]


@dataclass(frozen=True)
class Row:
    """One figure of a program at a site.

    `ratio` is Barewire's time divided by the other's, or for rates the inverse: below 1 Barewire is faster. `values`
    and medians are in `unit`, Barewire's first; intervals are 95 %, None below 6 launches.
    """

    site: str
    application: str
    figure: str
    unit: str
    rival: str
    values: tuple[tuple[float, ...], tuple[float, ...]]
    medians: tuple[float, float]
    medians_interval: tuple[Interval | None, Interval | None]
    ratio: float
    ratio_interval: Interval | None
    verdict: str


@dataclass(frozen=True)
class Results:
    """All results of one run."""

    plan: Plan
    environment: Mapping[str, Any]
    launches: tuple[Launch, ...]
    skipped: tuple[Skipped, ...]
    versions: Mapping[str, str]

    @property
    def rows(self) -> list[Row]:
        """All rows, the slowest first."""
        rows = [row for site in self.plan.sites for row in rows_of(self.plan.applications, site, self.launches)]
        return sorted(rows, key=lambda row: row.ratio, reverse=True)

    @property
    def failures(self) -> list[Launch]:
        """Launches without figures, including warm-ups."""
        return [launch for launch in self.launches if launch.error is not None]

    def document(self) -> dict[str, Any]:
        """Return everything as plain JSON."""
        plan = self.plan
        return {
            "schema": SCHEMA,
            "parameters": {
                "applications": [application.name for application in plan.applications],
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
            "failures": [asdict(each) for each in self.failures],
            "skipped": [asdict(each) for each in self.skipped],
            "launches": [asdict(each) for each in self.launches],
        }


def rows_of(applications: Sequence[Application], site: Site, launches: Sequence[Launch]) -> list[Row]:
    """Return a row for each figure with launches over both fabrics; warm-ups are left out."""
    subjects: list[tuple[Application, Figure]] = []
    values: list[tuple[tuple[float, ...], tuple[float, ...]]] = []
    for application in applications:
        for figure in application.figures:
            ours, theirs = (
                tuple(
                    launch.figures[figure.name]
                    for launch in launches
                    if (launch.site, launch.application, launch.fabric) == (site.name, application.name, fabric)
                    and launch.round > 0
                    and launch.error is None
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
    for (application, figure), pair, compared in zip(
        subjects, values, compare_over_sizes(pairs, lower_is_better=True), strict=True
    ):
        ours, theirs = pair
        # A rate's pair is swapped, so that a smaller first value means that Barewire is faster.
        verdict = {"A faster": "Barewire faster", "B faster": f"{site.rival} faster"}
        rows.append(
            Row(
                site=site.name,
                application=application.name,
                figure=figure.name,
                unit=figure.unit,
                rival=site.rival,
                values=pair,
                medians=(median(ours), median(theirs)),
                medians_interval=(median_interval(ours), median_interval(theirs)),
                ratio=compared.ratio,
                ratio_interval=compared.ratio_interval,
                verdict=verdict.get(compared.verdict, compared.verdict),
            )
        )
    return rows


def geometric_means(rows: Sequence[Row]) -> dict[str, float]:
    """Return the mean over programs for each site; all figures of a program count as one."""
    means = {}
    for site in dict.fromkeys(row.site for row in rows):
        site_rows = [row for row in rows if row.site == site]
        programs = dict.fromkeys(row.application for row in site_rows)
        means[site] = geometric_mean(
            geometric_mean(row.ratio for row in site_rows if row.application == program) for program in programs
        )
    return means


def markdown(results: Results) -> str:
    """Return the table for a README: all sites, the slowest row first, then means, failures and skipped programs."""
    applications = {each.name: each for each in results.plan.applications}
    site_names = {site.name: site.what for site in results.plan.sites}
    lines = [
        "| program | what it is | hosts | TCP | Barewire | Barewire's time by TCP's |",
        "|---|---|---|---|---|---|",
    ]
    for row in results.rows:
        application = applications[row.application]
        program = row.application if len(application.figures) == 1 else f"{row.application}: {row.figure}"
        # On one host the other fabric is not TCP.
        theirs = f"{number(row.medians[1])} {row.unit}" + ("" if row.rival == "tcp" else f" ({row.rival})")
        cells = [
            program,
            application.what,
            site_names[row.site],
            theirs,
            f"{number(row.medians[0])} {row.unit}",
        ]
        lines.append(f"| {' | '.join(cells)} | {ratio_text(row)} |")
    means = ", ".join(f"{site_names[site]} {mean:.2f}" for site, mean in geometric_means(results.rows).items())
    lines += ["", f"Geometric mean over programs: {means or 'nothing was measured'}."]
    if results.failures:
        failed = ", ".join(
            sorted({f"{launch.application} over {launch.fabric} ({launch.site})" for launch in results.failures})
        )
        lines += ["", f"**Failed**: {failed}."]
    if results.skipped:
        lines += ["", f"Skipped: {', '.join(skipped.application for skipped in results.skipped)}."]
    return "\n".join(lines) + "\n"


def ratio_text(row: Row) -> str:
    """Return the ratio, with its interval if there are enough launches."""
    interval = "" if row.ratio_interval is None else f" [{row.ratio_interval[0]:.2f}, {row.ratio_interval[1]:.2f}]"
    return f"{row.ratio:.2f}{interval}"


def number(value: float) -> str:
    """Format a value with three significant digits."""
    if not value > 0:
        raise MeasurementFailed(f"a figure is {value}, but must be above 0")
    return f"{value:.3g}" if value < 1000 else f"{value:.0f}"
