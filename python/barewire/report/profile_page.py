# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The page of a profile: one HTML file that needs nothing else."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from barewire.report.html import page, rows
from barewire.report.profile import calls_table, cost_sentence, headlines, ranks_table, waits_table
from barewire.report.profile_figures import calls_bars, over_time, stacked
from barewire.results.job_profile import JobProfile, RankParts

RANKS_DRAWN = 64


@dataclass(frozen=True)
class Head:
    """What the page's frame says of a run."""

    id: str
    created: str
    facts: str


def profile_page(profile: JobProfile, facts: Mapping[str, Any], command: str, notes: Sequence[str]) -> str:
    """The page of one profiled launch."""
    name = PurePath(facts["command"][0]).name
    over = f"{name} over {facts['fabric']}"
    ranks = f"{len(profile.ranks)} rank{'s' if len(profile.ranks) != 1 else ''} · {profile.library}"
    return page(
        "profile.html.j2",
        run=Head(over, facts["created"], f"{facts['created']} · 1 launch · {ranks}"),
        headlines=headlines(profile, over),
        warnings=notes,
        parts=profile_parts({facts["fabric"]: profile}),
        cost=cost_sentence(profile),
        command=command,
        environment=rows(facts["environment"]),
        parameters=rows({key: facts[key] for key in ("command", "fabric", "shares", "exit_code")}),
    )


def profile_parts(profiles: Mapping[str, JobProfile], colours: Mapping[str, str] | None = None) -> list[dict[str, Any]]:
    """Sections: where the time goes, calls, when, ranks, longest waits; one profile or several side by side."""
    known = {name: one for name, one in profiles.items() if one.ranks}
    if not known:
        return []
    looks = colours or dict.fromkeys(known, "#0072B2")
    figures = [_figure(_bars_title(known), _PARTS, _bars(known))]
    when = [_figure(_titled("In MPI over time", name, known), _WHEN, over_time(one)) for name, one in known.items()]
    return [
        _part("time", "Where the time goes", _PARTS_TOLD, [*figures, *when], []),
        _part(
            "calls",
            "Calls",
            "By kind and by message size, in powers of two.",
            [_figure("Most time", "Mean rank.", calls_bars(known, looks))],
            [(_titled("All calls", name, known), calls_table(one)) for name, one in known.items()],
        ),
        _part(
            "ranks",
            "Ranks",
            "Even ranks have bars that are alike. Who works less outside MPI waits more in it.",
            [],
            [(_titled("Each rank", name, known), ranks_table(one)) for name, one in known.items()],
        ),
        _part(
            "waits",
            "Longest waits",
            "Single calls, whichever rank made them.",
            [],
            [(_titled("Longest first", name, known), waits_table(one)) for name, one in known.items()],
        ),
    ]


_PARTS = "Seconds between MPI_Init's end and MPI_Finalize."
_WHEN = "A steady line is a program that does the same all the time; a peak is where ranks wait for something."
_PARTS_TOLD = (
    "Outside MPI the program computes. Waiting is what a call that waits for others (a blocking send or receive, a "
    "wait, a probe, a collective, a synchronisation) takes beyond the shortest call of its kind and size in any rank; "
    "the shortest, and calls that wait for nobody, count as moving. Asking is MPI_Test, MPI_Iprobe and their like."
)


def _bars_title(known: Mapping[str, JobProfile]) -> str:
    return "Each rank" if len(known) == 1 else "The mean rank"


def _bars(known: Mapping[str, JobProfile]) -> dict[str, Any]:
    if len(known) > 1:
        return stacked({name: one.mean for name, one in known.items()})
    ((_, only),) = known.items()
    return stacked({_rank_name(one): one.parts for one in only.ranks[:RANKS_DRAWN]})


def _rank_name(one: RankParts) -> str:
    return f"{'spawned ' if one.spawned else ''}rank {one.rank}, {one.host}"


def _titled(title: str, name: str, known: Mapping[str, JobProfile]) -> str:
    return title if len(known) == 1 else f"{title}, over {name}"


def _figure(title: str, caption: str, figure: dict[str, Any]) -> dict[str, Any]:
    return {"title": title, "caption": caption, "figure": figure}


def _part(id_: str, title: str, told: str, figures: list[Any], tables: list[Any]) -> dict[str, Any]:
    return {"id": id_, "title": title, "explanation": told, "figures": figures, "tables": tables}
