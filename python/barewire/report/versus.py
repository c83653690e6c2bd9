# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Which series are compared with which: a subject with a baseline in one run, or with itself in another run."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from barewire.errors import WrongUse
from barewire.models.naming import baseline_of
from barewire.results import Place, Row, Run, Series
from barewire.results.quantities import has_own_sizes
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
            "ranks": self.a.ranks,
            "variant": self.a.variant,
            "quantity": self.a.quantity,
            "parameter": self.a.parameter,
            "parameter_value": self.a.parameter_value,
            "message_bytes": self.a.message_bytes,
            "unit": self.a.unit,
            "subject": self.a.subject,
            "against": self.b.subject,
            "median_a": self.a.median,
            "median_b": self.b.median,
            **asdict(self.result),
        }


def has_baseline(run: Run, baseline: str) -> bool:
    """Whether the run has anything to compare with: that subject, or a library over that fabric."""
    subjects = {one.subject for one in run.series}
    return any(baseline_of(subject, baseline) in subjects for subject in subjects)


def compare_in_run(run: Run, baseline: str = "tcp", *, margin: float = MARGIN) -> list[Versus]:
    """Every other subject against `baseline`, per test and row; WrongUse when the run has no such subject.

    Of MPI libraries `baseline` may be a fabric: then each is compared with itself over that fabric.
    """
    if not has_baseline(run, baseline):
        subjects = sorted({one.subject for one in run.series})
        raise WrongUse(f"the run has no subject {baseline!r}; it has {', '.join(subjects) or 'none'}")
    known = {(one.subject, *_where(one)): one for one in run.series}
    others = [one for one in run.series if one.subject != baseline_of(one.subject, baseline)]

    def base(one: Series) -> Series | None:
        return known.get((baseline_of(one.subject, baseline), *_where(one)))

    return _compare(others, base, margin=margin, seed=run.seed)


def compare_variants(run: Run, variant: str, *, margin: float = MARGIN) -> list[Versus]:
    """Every other variant of a test against `variant`, per subject; WrongUse when the run has no such variant.

    The size of messages may follow from the variant (of a kernel's): then it is no difference in what is measured.
    """
    variants = sorted({one.variant for one in run.series if one.variant})
    if variant not in variants:
        raise WrongUse(f"the run has no variant {variant!r}; it has {', '.join(variants) or 'none'}")
    known = {(one.subject, *_task(one)): one for one in run.series if one.variant == variant}
    others = [one for one in run.series if one.variant != variant]
    return _compare(others, lambda one: known.get((one.subject, *_task(one))), margin=margin, seed=run.seed)


def compare_runs(a: Run, b: Run, *, margin: float = MARGIN, across_environments: bool = False) -> list[Versus]:
    """Each subject of `a` against the same subject of `b`, per test and size.

    WrongUse when the runs come from different environments (unless asked for), or share no series.
    """
    if not across_environments:
        _refuse_other_environment(a, b)
    others = {(one.subject, *_where(one)): one for one in b.series}
    found = _compare(a.series, lambda one: others.get((one.subject, *_where(one))), margin=margin, seed=a.seed)
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
    # Holm corrects over the sizes of one subject in one test and variant: that is one question.
    families: dict[tuple[Place, str, str], list[tuple[Series, Series]]] = {}
    for one in series:
        against = other(one)
        # What was derived may be nothing, or less: of that there is no ratio.
        if against is not None and all(of.launch_medians and min(of.launch_medians) > 0 for of in (one, against)):
            families.setdefault((one.place, one.subject, one.variant), []).append((one, against))
    found = []
    for pairs in families.values():
        medians = [(a.launch_medians, b.launch_medians) for a, b in pairs]
        lower_is_better = pairs[0][0].lower_is_better
        results = compare_over_sizes(medians, lower_is_better=lower_is_better, margin=margin, seed=seed)
        found += [Versus(a, b, result) for (a, b), result in zip(pairs, results, strict=True)]
    return found


def _where(one: Series) -> tuple[Place, Row]:
    return one.place, one.row


def _task(one: Series) -> tuple[Place, int | None, float | None]:
    """What a variant does, whatever the size of its messages where that is a kernel's own business."""
    return one.place, None if has_own_sizes(one.test) else one.message_bytes, one.parameter_value


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
