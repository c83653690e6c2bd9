# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Sentences about what changed besides the subjects: the floor between two runs, and anything within one."""

from collections.abc import Iterable, Sequence

from barewire.models.naming import is_floor
from barewire.report.words import bounds, number, percent, subject_name, title_of
from barewire.results.floors import Drift, Moved

NO_FLOOR_IN_BOTH = (
    "Not both runs have a floor, so a change of the machine cannot be told from one of the subjects "
    "(--floor SUBJECT names another reference)."
)


def floor_sentences(floors: Sequence[Moved], new: str, old: str) -> list[str]:
    """How far each floor moved from the old run to the new one; or that there is none."""
    sentences = []
    for each in floors:
        result = each.result
        ratio = f"{number(result.ratio)} {bounds(result.ratio_interval)}".rstrip()
        what = {
            "no difference": f"did not move: {ratio}",
            "undecided": f"may have moved: {ratio}",
        }.get(result.verdict, f"itself moved: {ratio} times {old}'s in {new}")
        name = f"the {subject_name(each.subject)}" if is_floor(each.subject) else subject_name(each.subject)
        sentences.append(f"{title_of(each.place)}: {name} {what}.")
    if sentences:
        sentences.append("Verdicts are by the ratio normalised by the floor, where a row has one.")
    return sentences or [NO_FLOOR_IN_BOTH]


def drift_sentences(drifts: Iterable[Drift]) -> list[str]:
    """The trends within runs."""
    sentences = []
    for each in drifts:
        what = ", ".join([title_of(each.place), subject_name(each.subject), *([each.variant] if each.variant else [])])
        change = each.trend.change - 1
        by = f"{'rose' if change > 0 else 'fell'} by {percent(round(abs(change), 3))}"
        sentences.append(
            f"Drift within {each.run}: {what} {by} over {each.launches} launches "
            f"(Kendall's τ {each.trend.tau:.2f}, p {each.p_holm:.2g})."
        )
    return sentences
