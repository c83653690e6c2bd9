# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The result of `try` in sentences and tables, and as a page."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console

from barewire.report import words
from barewire.report.answer import Answer
from barewire.report.figures import INK, Figure, colour_of, hatch, layout_of, plain_axis, point_data, shortened
from barewire.report.html import page, rows
from barewire.report.profile import TextTable, cost_sentence, percent, rich_table, seconds
from barewire.report.profile_page import Head, profile_parts, with_figure
from barewire.results.agreement import Agreement, Difference
from barewire.results.job_profile import JobProfile
from barewire.results.trial import MAIN, Contest, Outcome
from barewire.stats.comparison import RESAMPLES
from barewire.stats.confidence import launches_for_interval

_DIFFERENCES_SHOWN = 8
# Share of wall time outside MPI_Init … MPI_Finalize above which start-up is mentioned.
_MUCH_START_UP = 0.2
_DASH = "–"


def verdict(contest: Contest, outcome: Outcome) -> str:
    """Which fabric is faster, by how much, and how certain that is."""
    tried, competitor = map(fabric_name, outcome.fabrics)
    first, second = contest.medians()
    counts = (
        f"{len(contest.first)} and {len(contest.second)} launches"
        if len(contest.first) != len(contest.second)
        else (f"{len(contest.first)} launches each")
    )
    ratio = f"ratio {words.number(contest.result.ratio)} {words.bounds(contest.result.ratio_interval)}".strip()
    measured = f"{seconds(first)} and {seconds(second)}, medians of {counts}, {ratio}"
    if contest.result.verdict in ("A faster", "B faster"):
        quick, slow = (tried, competitor) if contest.result.verdict == "A faster" else (competitor, tried)
        times = words.number(max(first, second) / min(first, second))
        return f"{quick} is faster: {outcome.program} takes {times} times as long over {slow} ({measured})."
    if contest.result.verdict == "no difference":
        return f"No difference between {tried} and {competitor} for {outcome.program} ({measured})."
    more = "more launches may decide (--launches)"
    return f"Undecided between {tried} and {competitor} for {outcome.program}: {measured}; {more}."


def headlines(outcome: Outcome) -> list[str]:
    """The verdict, and the largest possible gain by a faster network."""
    sentences = [verdict(outcome.contests[0], outcome)]
    total, main = outcome.contests[0], next((contest for contest in outcome.contests if contest.what == MAIN), None)
    if main is not None and sum(main.medians()) < (1 - _MUCH_START_UP) * sum(total.medians()):
        sentences.append(
            f"Much of a launch is start-up and shutdown. From MPI_Init to MPI_Finalize only: {verdict(main, outcome)}"
        )
    competitor = outcome.profiles.get(outcome.fabrics[1])
    if competitor is not None and competitor.ranks:
        sentences.append(_bound(competitor, fabric_name(outcome.fabrics[1])))
    return sentences


def warnings(outcome: Outcome, notes: Sequence[str]) -> list[str]:
    """Warnings that qualify the result."""
    found = list(notes)
    if not outcome.agreement.agree:
        found.append(disagreement(outcome.agreement, outcome.fabrics))
    if outcome.agreement.unsteady:
        varying = _differences(outcome.agreement.unsteady, outcome.fabrics)
        found.append(f"the output varies from launch to launch over one fabric, and not over the other: {varying}")
    few = min(len(outcome.contests[0].first), len(outcome.contests[0].second))
    needed = launches_for_interval(outcome.confidence)
    if few < needed:
        are = "es of each are" if few != 1 else " of each is"
        found.append(f"{few} launch{are} too few for an interval, which needs {needed}")
    return found


def disagreement(agreement: Agreement, fabrics: tuple[str, str]) -> str:
    """The differences in output."""
    return "THE OUTPUT DIFFERS between the fabrics, and is the same in all launches over one of them: " + _differences(
        agreement.differences, fabrics
    )


def _differences(differences: Sequence[Difference], fabrics: tuple[str, str]) -> str:
    shown = [
        f"“{difference.line}”: {difference.first} over {fabrics[0]}, {difference.second} over {fabrics[1]}"
        for difference in differences[:_DIFFERENCES_SHOWN]
    ]
    more = len(differences) - len(shown)
    marks = " (# is a number, [#] the one meant)" if any("[#]" in each for each in shown) else ""
    return "; ".join(shown) + (f"; and {more} more" if more else "") + marks


def agreement_sentence(agreement: Agreement) -> str:
    """How far the outputs agree."""
    if not agreement.lines:
        return "The program printed nothing on standard output."
    parts = [f"{agreement.varying} vary between launches over the same fabric, too"] if agreement.varying else []
    parts += [f"{agreement.timings} differ in what looks like a time or a rate"] if agreement.timings else []
    rest = f" Of its {agreement.lines} distinct lines {' and '.join(parts)}." if parts else ""
    return ("Exit codes and output agree." if agreement.agree else "Exit codes agree, the output does not.") + rest


def times_table(outcome: Outcome) -> TextTable:
    """Medians with their intervals."""
    interval = words.interval_heading(outcome.confidence)
    headings = ("time of", *(fabric_name(name) for name in outcome.fabrics), "ratio", interval, "is")
    table = []
    for contest in outcome.contests:
        medians = [seconds(value, bounds) for value, bounds in zip(contest.medians(), contest.intervals(), strict=True)]
        is_what = words.VERDICT_WORDS[contest.result.verdict]
        ratio = words.number(contest.result.ratio)
        table.append((contest.what, *medians, ratio, words.bounds(contest.result.ratio_interval) or _DASH, is_what))
    with_interval = any(bounds for contest in outcome.contests for bounds in contest.intervals())
    each = f", each with its {interval}" if with_interval else ""
    caption = f"Medians of launches{each}; ratio of the first to the second."
    return TextTable("Times", caption, headings, tuple(table))


def parts_table(profiles: Mapping[str, JobProfile]) -> TextTable:
    """Parts of the mean rank's time, over each fabric."""
    table = []
    for name, profile in profiles.items():
        mean = profile.mean
        times = (profile.main_s, mean.outside_s, mean.waiting_s, mean.asking_s, mean.moving_s)
        table.append((fabric_name(name), *map(seconds, times), percent(profile.mpi_share)))
    headings = ("one profiled launch", "all", "outside MPI", "waiting", "asking", "moving", "in MPI")
    return TextTable("Where the time goes", "The mean rank, MPI_Init's end to MPI_Finalize.", headings, tuple(table))


def print_trial(console: Console, outcome: Outcome, notes: Sequence[str]) -> None:
    """The result in a terminal."""
    for note in warnings(outcome, notes):
        console.print(f"! {note}", markup=False)
    for sentence in headlines(outcome):
        console.print(sentence, markup=False)
    console.print(rich_table(times_table(outcome)))
    if any(profile.ranks for profile in outcome.profiles.values()):
        console.print(rich_table(parts_table(outcome.profiles)))
    console.print(agreement_sentence(outcome.agreement), markup=False)


def trial_page(outcome: Outcome, facts: Mapping[str, Any], command: str, notes: Sequence[str]) -> str:
    """The page of a trial."""
    colours = {fabric_name(name): colour_of(name) for name in outcome.fabrics}
    profiles = {fabric_name(name): profile for name, profile in outcome.profiles.items()}
    parts = [
        {
            "id": "times",
            "title": "Who is faster",
            "explanation": "Every point is a launch; launches were interleaved in an order drawn from the seed.",
            "figures": [
                {
                    "title": contest.what[:1].upper() + contest.what[1:],
                    "caption": f"Points: {len(contest.first)} and {len(contest.second)} launches. Bars: their medians.",
                    "figure": _points(contest, outcome),
                }
                for contest in outcome.contests
            ],
            "tables": [("All times", times_table(outcome))],
        },
        *profile_parts(profiles, colours),
    ]
    tried, competitor = outcome.fabrics
    first, *others = headlines(outcome)
    question = f"Is {outcome.program} faster over {fabric_name(tried)} than over {fabric_name(competitor)}?"
    return page(
        "trial.html.j2",
        run=Head(
            f"{outcome.program}: {fabric_name(tried)} or {fabric_name(competitor)}?",
            facts["created"],
            f"{facts['created']} · {facts['timed_launches']} timed launches after a warm-up of each · "
            f"seed {facts['seed']}",
        ),
        answer=with_figure(Answer(question, first, tuple(others)), parts),
        warnings=warnings(outcome, notes),
        parts=parts,
        agreement=agreement_sentence(outcome.agreement),
        costs=[f"Over {name}: {cost_sentence(profile)}" for name, profile in profiles.items() if profile.ranks],
        few=launches_for_interval(outcome.confidence),
        half_tail=(1 - outcome.confidence) / 2,
        figures_confidence=outcome.confidence,
        resamples=RESAMPLES,
        margin_percent=round(outcome.contests[0].result.margin * 100),
        seed=facts["seed"],
        command=command,
        environment=rows(facts["environment"]),
        parameters=rows({key: facts[key] for key in ("command", "library", "shares", "lab", "limit_s", "seed")}),
    )


def fabric_name(fabric: str) -> str:
    """Display name of a fabric."""
    return {"barewire": "Barewire", "tcp": "TCP", "ucx": "UCX"}.get(fabric, fabric)


def _bound(profile: JobProfile, fabric: str) -> str:
    share = profile.mpi_share
    of_late = min(share, profile.late_s / profile.main_s) if profile.main_s else 0.0
    text = f"Over {fabric} it is in MPI for {percent(share)} of the time after MPI_Init, the most a network can save."
    if of_late > 0.01:
        text += f" {percent(of_late)} of that time ranks wait for others that compute longer, over any network."
    return text


def _points(contest: Contest, outcome: Outcome) -> Figure:
    traces: list[dict[str, Any]] = []
    both = (contest.first, contest.second), contest.medians(), contest.intervals()
    for number, (name, values, median, interval) in enumerate(zip(outcome.fabrics, *both, strict=True)):
        label, colour = fabric_name(name), colour_of(name)
        traces.append(
            {
                "type": "bar",
                "orientation": "h",
                "name": label,
                "x": [shortened(median)],
                "y": [label],
                "marker": {
                    "color": colour,
                    "opacity": 0.35,
                    "pattern": hatch(number),
                    "line": {"color": INK, "width": 0.5},
                },
                "customdata": [point_data(interval, len(values))],
                "hovertemplate": f"{label}: median %{{x:.4g}} s<extra></extra>",
                "showlegend": False,
            }
        )
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": label,
                "x": [shortened(value) for value in values],
                "y": [label] * len(values),
                "marker": {"symbol": "circle", "color": colour, "size": 9, "line": {"color": INK, "width": 1}},
                "hovertemplate": f"{label}: %{{x:.4g}} s<extra></extra>",
                "showlegend": False,
            }
        )
    y_axis = {**plain_axis(""), "type": "category", "autorange": "reversed"}
    return {
        "data": traces,
        "layout": layout_of({**plain_axis("seconds"), "rangemode": "tozero"}, y_axis),
        "height_px": 110,
    }
