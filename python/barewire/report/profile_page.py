# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The page of a profile: one self-contained HTML file."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Any

from barewire.report.answer import Answer
from barewire.report.html import page, rows
from barewire.report.profile import calls_table, cost_sentence, headlines, ranks_table, waits_table
from barewire.report.profile_figures import calls_bars, over_time, stacked
from barewire.results.job_profile import JobProfile, RankParts

RANKS_DRAWN = 64


@dataclass(frozen=True)
class Head:
    """Data about a run in the page's header."""

    id: str
    created: str
    facts: str


def profile_page(profile: JobProfile, facts: Mapping[str, Any], command: str, notes: Sequence[str]) -> str:
    """The page of one profiled launch."""
    name = PurePath(facts["command"][0]).name
    over = f"{name} over {facts['fabric']}"
    ranks = f"{len(profile.ranks)} rank{'s' if len(profile.ranks) != 1 else ''} · {profile.library}"
    parts = profile_parts({facts["fabric"]: profile})
    return page(
        "profile.html.j2",
        run=Head(over, facts["created"], f"{facts['created']} · 1 launch · {ranks}"),
        answer=with_figure(Answer(f"Where does the time of {name} go?", *_split(headlines(profile, over))), parts),
        warnings=notes,
        parts=parts,
        cost=cost_sentence(profile),
        command=command,
        environment=rows(facts["environment"]),
        parameters=rows({key: facts[key] for key in ("command", "fabric", "shares", "exit_code")}),
    )


def _split(sentences: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """The first sentence, and the others."""
    return (sentences[0], tuple(sentences[1:])) if sentences else ("No rank left a profile.", ())


def with_figure(answer: Answer, parts: Sequence[Mapping[str, Any]]) -> Answer:
    """The answer with the first figure of a page's parts, if there is one."""
    card = next((card for part in parts for card in part["figures"]), None)
    if card is None:
        return answer
    return replace(answer, title=card["title"], caption=card["caption"], figure=card["figure"])


def profile_parts(profiles: Mapping[str, JobProfile], colours: Mapping[str, str] | None = None) -> list[dict[str, Any]]:
    """Sections: parts of the time, calls, time line, ranks, longest waits; one profile or several side by side."""
    known = {name: profile for name, profile in profiles.items() if profile.ranks}
    if not known:
        return []
    looks = colours or dict.fromkeys(known, "#0072B2")
    figures = [_figure(_bars_title(known), _PARTS, _bars(known))]
    when = [
        _figure(_titled("In MPI over time", name, known), _WHEN, over_time(profile)) for name, profile in known.items()
    ]
    return [
        _part("time", "Where the time goes", _PARTS_TOLD, [*figures, *when], []),
        _part(
            "calls",
            "Calls",
            "By kind and by message size, in powers of two.",
            [_figure("Most time", "Mean rank.", calls_bars(known, looks))],
            [(_titled("All calls", name, known), calls_table(profile)) for name, profile in known.items()],
        ),
        _part(
            "ranks",
            "Ranks",
            "Balanced ranks have similar bars. A rank that computes less waits more in MPI.",
            [],
            [(_titled("Each rank", name, known), ranks_table(profile)) for name, profile in known.items()],
        ),
        _part(
            "waits",
            "Longest waits",
            "Single calls of any rank.",
            [],
            [(_titled("Longest first", name, known), waits_table(profile)) for name, profile in known.items()],
        ),
    ]


_PARTS = "Seconds between MPI_Init's end and MPI_Finalize."
_WHEN = "A steady line means uniform behaviour; peaks are phases in which ranks wait."
_PARTS_TOLD = (
    "Outside MPI the program computes. Waiting is the time of a blocking call (send, receive, wait, probe, collective, "
    "synchronisation) beyond the shortest call of its kind and size in any rank; the rest, and calls that do not wait, "
    "count as moving. Asking is MPI_Test, MPI_Iprobe and similar calls."
)


def _bars_title(known: Mapping[str, JobProfile]) -> str:
    return "Each rank" if len(known) == 1 else "The mean rank"


def _bars(known: Mapping[str, JobProfile]) -> dict[str, Any]:
    if len(known) > 1:
        return stacked({name: profile.mean for name, profile in known.items()})
    ((_, only),) = known.items()
    return stacked({_rank_name(rank): rank.parts for rank in only.ranks[:RANKS_DRAWN]})


def _rank_name(rank: RankParts) -> str:
    return f"{'spawned ' if rank.spawned else ''}rank {rank.rank}, {rank.host}"


def _titled(title: str, name: str, known: Mapping[str, JobProfile]) -> str:
    return title if len(known) == 1 else f"{title}, over {name}"


def _figure(title: str, caption: str, figure: dict[str, Any]) -> dict[str, Any]:
    return {"title": title, "caption": caption, "figure": figure}


def _part(id_: str, title: str, explanation: str, figures: list[Any], tables: list[Any]) -> dict[str, Any]:
    return {"id": id_, "title": title, "explanation": explanation, "figures": figures, "tables": tables}
