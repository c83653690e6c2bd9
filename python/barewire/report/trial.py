# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A trial in sentences and tables, and as a page."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console

from barewire.report import words
from barewire.report.figures import INK, Figure, colour_of, layout_of, plain_axis, shortened
from barewire.report.html import page, rows
from barewire.report.profile import Words, cost_sentence, percent, rich_table, seconds
from barewire.report.profile_page import Head, profile_parts
from barewire.results.agreement import Agreement
from barewire.results.job_profile import JobProfile
from barewire.results.trial import MAIN, Contest, Outcome
from barewire.stats import LAUNCHES_FOR_INTERVAL
from barewire.stats.comparison import RESAMPLES

_DIFFERENCES_SHOWN = 8
# Beyond this share of the wall time outside MPI_Init … MPI_Finalize, start-up is worth a sentence.
_MUCH_START_UP = 0.2
_DASH = "–"


def verdict(one: Contest, outcome: Outcome) -> str:
    """Who is faster, by how much, how sure."""
    tried, other = map(fabric_name, outcome.fabrics)
    first, second = one.medians()
    counts = (
        f"{len(one.first)} and {len(one.second)} launches"
        if len(one.first) != len(one.second)
        else (f"{len(one.first)} launches each")
    )
    ratio = f"ratio {words.number(one.result.ratio)} {words.bounds(one.result.ratio_ci95)}".strip()
    measured = f"{seconds(first)} and {seconds(second)}, medians of {counts}, {ratio}"
    if one.result.verdict in ("A faster", "B faster"):
        quick, slow = (tried, other) if one.result.verdict == "A faster" else (other, tried)
        times = words.number(max(first, second) / min(first, second))
        return f"{quick} is faster: {outcome.program} takes {times} times as long over {slow} ({measured})."
    if one.result.verdict == "no difference":
        return f"No difference between {tried} and {other} for {outcome.program} ({measured})."
    return (
        f"Undecided between {tried} and {other} for {outcome.program}: {measured}; more launches may tell (--launches)."
    )


def headlines(outcome: Outcome) -> list[str]:
    """The verdict, and what follows for the network from where the time goes."""
    said = [verdict(outcome.contests[0], outcome)]
    whole, main = outcome.contests[0], next((one for one in outcome.contests if one.what == MAIN), None)
    if main is not None and sum(main.medians()) < (1 - _MUCH_START_UP) * sum(whole.medians()):
        said.append(f"Much of a launch is start and end. From MPI_Init to MPI_Finalize alone: {verdict(main, outcome)}")
    other = outcome.profiles.get(outcome.fabrics[1])
    if other is not None and other.ranks:
        said.append(_bound(other, fabric_name(outcome.fabrics[1])))
    return said


def warnings(outcome: Outcome, notes: Sequence[str]) -> list[str]:
    """What a reader must know first."""
    found = list(notes)
    if not outcome.agreement.agree:
        found.append(disagreement(outcome.agreement, outcome.fabrics))
    few = min(len(outcome.contests[0].first), len(outcome.contests[0].second))
    if few < LAUNCHES_FOR_INTERVAL:
        found.append(f"{few} launches of each are too few for an interval, which needs {LAUNCHES_FOR_INTERVAL}")
    return found


def disagreement(agreement: Agreement, fabrics: tuple[str, str]) -> str:
    """What was printed differently."""
    shown = [
        f"“{one.line}”: {one.first} over {fabrics[0]}, {one.second} over {fabrics[1]}"
        for one in agreement.differences[:_DIFFERENCES_SHOWN]
    ]
    more = len(agreement.differences) - len(shown)
    return (
        "THE OUTPUT DIFFERS between the fabrics, and is the same in all launches over one of them: "
        + "; ".join(shown)
        + (f"; and {more} more" if more else "")
    )


def agreement_sentence(agreement: Agreement) -> str:
    """How far the output is the same."""
    if not agreement.lines:
        return "The program printed nothing on standard output."
    parts = [f"{agreement.varying} vary from launch to launch over one fabric, too"] if agreement.varying else []
    parts += [f"{agreement.timings} differ in what looks like a time or a rate"] if agreement.timings else []
    rest = f" Of {agreement.lines} different lines {' and '.join(parts)}." if parts else ""
    return ("Exit codes and output agree." if agreement.agree else "Exit codes agree, the output does not.") + rest


def times_table(outcome: Outcome) -> Words:
    """Medians with their intervals."""
    headings = ("time of", *(fabric_name(name) for name in outcome.fabrics), "ratio", "95 % interval", "is")
    table = []
    for one in outcome.contests:
        medians = [seconds(value, bounds) for value, bounds in zip(one.medians(), one.intervals(), strict=True)]
        is_what = words.VERDICT_WORDS[one.result.verdict]
        ratio = words.number(one.result.ratio)
        table.append((one.what, *medians, ratio, words.bounds(one.result.ratio_ci95) or _DASH, is_what))
    caption = "Medians of launches with 95 % intervals; ratio of the first to the second."
    return Words("Times", caption, headings, tuple(table))


def parts_table(profiles: Mapping[str, JobProfile]) -> Words:
    """Where the mean rank's time goes, over each fabric."""
    table = []
    for name, one in profiles.items():
        mean = one.mean
        times = (one.main_s, mean.outside_s, mean.waiting_s, mean.asking_s, mean.moving_s)
        table.append((fabric_name(name), *map(seconds, times), percent(one.mpi_share)))
    headings = ("one profiled launch", "all", "outside MPI", "waiting", "asking", "moving", "in MPI")
    return Words("Where the time goes", "The mean rank, MPI_Init's end to MPI_Finalize.", headings, tuple(table))


def print_trial(console: Console, outcome: Outcome, notes: Sequence[str]) -> None:
    """The result in a terminal."""
    for note in warnings(outcome, notes):
        console.print(f"! {note}", markup=False)
    for sentence in headlines(outcome):
        console.print(sentence, markup=False)
    console.print(rich_table(times_table(outcome)))
    if any(one.ranks for one in outcome.profiles.values()):
        console.print(rich_table(parts_table(outcome.profiles)))
    console.print(agreement_sentence(outcome.agreement), markup=False)


def trial_page(outcome: Outcome, facts: Mapping[str, Any], command: str, notes: Sequence[str]) -> str:
    """The page of a trial."""
    colours = {fabric_name(name): colour_of(name) for name in outcome.fabrics}
    profiles = {fabric_name(name): one for name, one in outcome.profiles.items()}
    parts = [
        {
            "id": "times",
            "title": "Who is faster",
            "explanation": "Every launch is a point; launches took turns in an order drawn from the seed.",
            "figures": [
                {
                    "title": one.what[:1].upper() + one.what[1:],
                    "caption": "Bar: the median.",
                    "figure": _points(one, outcome),
                }
                for one in outcome.contests
            ],
            "tables": [("All times", times_table(outcome))],
        },
        *profile_parts(profiles, colours),
    ]
    tried, other = outcome.fabrics
    return page(
        "trial.html.j2",
        run=Head(
            f"{outcome.program}: {fabric_name(tried)} or {fabric_name(other)}?",
            facts["created"],
            f"{facts['created']} · {facts['timed_launches']} timed launches after a warm-up of each · "
            f"seed {facts['seed']}",
        ),
        headlines=headlines(outcome),
        warnings=warnings(outcome, notes),
        parts=parts,
        agreement=agreement_sentence(outcome.agreement),
        costs=[f"Over {name}: {cost_sentence(one)}" for name, one in profiles.items() if one.ranks],
        few=LAUNCHES_FOR_INTERVAL,
        resamples=RESAMPLES,
        margin_percent=round(outcome.contests[0].result.margin * 100),
        seed=facts["seed"],
        command=command,
        environment=rows(facts["environment"]),
        parameters=rows({key: facts[key] for key in ("command", "library", "shares", "lab", "limit_s", "seed")}),
    )


def fabric_name(fabric: str) -> str:
    """As a reader knows it."""
    return {"barewire": "Barewire", "tcp": "TCP", "ucx": "UCX"}.get(fabric, fabric)


def _bound(profile: JobProfile, fabric: str) -> str:
    share = profile.mpi_share
    of_late = min(share, profile.late_s / profile.main_s) if profile.main_s else 0.0
    said = f"Over {fabric} it is in MPI for {percent(share)} of the time after MPI_Init: no network can save more."
    if of_late > 0.01:
        said += f" {percent(of_late)} of that time ranks wait for others that compute longer, over any network."
    return said


def _points(one: Contest, outcome: Outcome) -> Figure:
    traces: list[dict[str, Any]] = []
    for name, values, median in zip(outcome.fabrics, (one.first, one.second), one.medians(), strict=True):
        label, colour = fabric_name(name), colour_of(name)
        traces.append(
            {
                "type": "bar",
                "orientation": "h",
                "name": label,
                "x": [shortened(median)],
                "y": [label],
                "marker": {"color": colour, "opacity": 0.35, "line": {"color": INK, "width": 0.5}},
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
                "marker": {"color": colour, "size": 9, "line": {"color": INK, "width": 1}},
                "hovertemplate": f"{label}: %{{x:.4g}} s<extra></extra>",
                "showlegend": False,
            }
        )
    y_axis = {**plain_axis(""), "type": "category", "autorange": "reversed"}
    return {
        "data": traces,
        "layout": layout_of({**plain_axis("seconds"), "rangemode": "tozero"}, y_axis),
        "height_px": 190,
    }
