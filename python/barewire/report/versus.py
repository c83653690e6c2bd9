# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Which series are compared with which: a subject with a baseline in one run, or with itself in another run."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from barewire.errors import WrongUse
from barewire.results import Run, Series
from barewire.stats import Comparison, compare_over_sizes

MARGIN = 0.02
_DIFFERENCES_SHOWN = 8


@dataclass(frozen=True)
class Versus:
    """`a` against `b` (series of the same test, pairs and size): A is the subject, B the baseline or other run."""

    a: Series
    b: Series
    result: Comparison

    def to_json(self) -> dict[str, Any]:
        """One JSON object: what is compared, both medians, and the comparison."""
        return {
            "test": self.a.test,
            "pairs": self.a.pairs,
            "processes": self.a.processes,
            "message_bytes": self.a.message_bytes,
            "unit": self.a.unit,
            "subject": self.a.subject,
            "against": self.b.subject,
            "median_a": self.a.median,
            "median_b": self.b.median,
            **asdict(self.result),
        }


def compare_in_run(run: Run, baseline: str = "tcp", *, margin: float = MARGIN) -> list[Versus]:
    """Every other subject against `baseline`, per test and size; WrongUse when the run has no such subject."""
    subjects = sorted({one.subject for one in run.series})
    if baseline not in subjects:
        raise WrongUse(f"the run has no subject {baseline!r}; it has {', '.join(subjects) or 'none'}")
    others = [one for one in run.series if one.subject != baseline]
    bases = {_place(one): one for one in run.series if one.subject == baseline}
    return _compare(others, lambda one: bases.get(_place(one)), margin=margin, seed=run.seed)


def compare_runs(a: Run, b: Run, *, margin: float = MARGIN, across_environments: bool = False) -> list[Versus]:
    """Each subject of `a` against the same subject of `b`, per test and size.

    WrongUse when the runs come from different environments (unless asked for), or share no series.
    """
    if not across_environments:
        _refuse_other_environment(a, b)
    others = {(one.subject, *_place(one)): one for one in b.series}
    found = _compare(a.series, lambda one: others.get((one.subject, *_place(one))), margin=margin, seed=a.seed)
    if not found:
        raise WrongUse("the two runs have no test, subject and message size in common")
    return found


def flatten(data: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested mappings as one with dotted keys, in order."""
    flat: dict[str, Any] = {}
    for key, value in data.items():
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def _compare(
    series: Iterable[Series], other: Callable[[Series], Series | None], *, margin: float, seed: int
) -> list[Versus]:
    # Holm corrects over the sizes of one subject in one test: that is one question.
    families: dict[tuple[str, int, int, str], list[tuple[Series, Series]]] = {}
    for one in series:
        against = other(one)
        if against is not None and one.launch_medians and against.launch_medians:
            families.setdefault((one.test, one.pairs, one.processes, one.subject), []).append((one, against))
    found = []
    for pairs in families.values():
        medians = [(a.launch_medians, b.launch_medians) for a, b in pairs]
        lower_is_better = pairs[0][0].lower_is_better
        results = compare_over_sizes(medians, lower_is_better=lower_is_better, margin=margin, seed=seed)
        found += [Versus(a, b, result) for (a, b), result in zip(pairs, results, strict=True)]
    return found


def _place(one: Series) -> tuple[str, int, int, int]:
    return one.test, one.pairs, one.processes, one.message_bytes


def _refuse_other_environment(a: Run, b: Run) -> None:
    prints = [run.environment.get("fingerprint") for run in (a, b)]
    if prints[0] is not None and prints[0] == prints[1]:
        return
    left, right = (flatten(_comparable(run)) for run in (a, b))
    differing = [key for key in {**left, **right} if left.get(key) != right.get(key)]
    shown = [f"{key} {left.get(key)!r} and {right.get(key)!r}" for key in differing[:_DIFFERENCES_SHOWN]]
    more = len(differing) - len(shown)
    what = "; ".join(shown) + (f"; and {more} more" if more > 0 else "") or "the environments' fingerprint"
    raise WrongUse(
        f"{a.id} and {b.id} were measured in different environments, so a difference says nothing about the "
        f"subjects. Differing: {what}. To compare all the same: --across-environments"
    )


def _comparable(run: Run) -> dict[str, Any]:
    environment = {key: value for key, value in run.environment.items() if key != "fingerprint"}
    return {**environment, "lab": run.lab or "none"}
