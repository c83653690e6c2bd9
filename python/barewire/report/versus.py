# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Pairs of series to compare: a subject with a baseline in one run, or with itself in another run."""

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
    """Whether the run has the baseline: that subject, or a library over that fabric."""
    subjects = {s.subject for s in run.series}
    return any(baseline_of(subject, baseline) in subjects for subject in subjects)


def compare_in_run(run: Run, baseline: str = "tcp", *, margin: float = MARGIN) -> list[Versus]:
    """Every other subject against `baseline`, per test and row; WrongUse when the run has no such subject.

    For MPI libraries `baseline` may be a fabric: then each library is compared with itself over that fabric.
    """
    if not has_baseline(run, baseline):
        subjects = sorted({s.subject for s in run.series})
        raise WrongUse(f"the run has no subject {baseline!r}; it has {', '.join(subjects) or 'none'}")
    known = {(s.subject, *_where(s)): s for s in run.series}
    compared = [s for s in run.series if s.subject != baseline_of(s.subject, baseline)]

    def base(series: Series) -> Series | None:
        return known.get((baseline_of(series.subject, baseline), *_where(series)))

    return _compare(compared, base, margin=margin, seed=run.seed)


def compare_variants(run: Run, variant: str, *, margin: float = MARGIN) -> list[Versus]:
    """Every other variant of a test against `variant`, per subject; WrongUse when the run has no such variant.

    Message sizes may depend on a kernel's variant; such sizes are ignored when matching.
    """
    variants = sorted({s.variant for s in run.series if s.variant})
    if variant not in variants:
        raise WrongUse(f"the run has no variant {variant!r}; it has {', '.join(variants) or 'none'}")
    known = {(s.subject, *_task(s)): s for s in run.series if s.variant == variant}
    compared = [s for s in run.series if s.variant != variant]
    return _compare(compared, lambda s: known.get((s.subject, *_task(s))), margin=margin, seed=run.seed)


def compare_runs(a: Run, b: Run, *, margin: float = MARGIN, across_environments: bool = False) -> list[Versus]:
    """Each subject of `a` against the same subject of `b`, per test and size.

    WrongUse if the runs come from different environments (unless allowed), or share no series.
    """
    if not across_environments:
        _refuse_other_environment(a, b)
    in_b = {(s.subject, *_where(s)): s for s in b.series}
    found = _compare(a.series, lambda s: in_b.get((s.subject, *_where(s))), margin=margin, seed=a.seed)
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
    series: Iterable[Series], counterpart: Callable[[Series], Series | None], *, margin: float, seed: int
) -> list[Versus]:
    # Holm's family: the sizes of one subject in one test and variant.
    families: dict[tuple[Place, str, str], list[tuple[Series, Series]]] = {}
    for s in series:
        against = counterpart(s)
        # Derived values may be 0 or negative, which have no ratio.
        if against is not None and all(of.launch_medians and min(of.launch_medians) > 0 for of in (s, against)):
            families.setdefault((s.place, s.subject, s.variant), []).append((s, against))
    found = []
    for pairs in families.values():
        medians = [(a.launch_medians, b.launch_medians) for a, b in pairs]
        lower_is_better = pairs[0][0].lower_is_better
        results = compare_over_sizes(medians, lower_is_better=lower_is_better, margin=margin, seed=seed)
        found += [Versus(a, b, result) for (a, b), result in zip(pairs, results, strict=True)]
    return found


def _where(series: Series) -> tuple[Place, Row]:
    return series.place, series.row


def _task(series: Series) -> tuple[Place, int | None, float | None]:
    """The task of a variant; without the message size if a kernel chooses it."""
    return series.place, None if has_own_sizes(series.test) else series.message_bytes, series.parameter_value


def _refuse_other_environment(a: Run, b: Run) -> None:
    prints = [run.environment.get("fingerprint") for run in (a, b)]
    if prints[0] is not None and prints[0] == prints[1]:
        return
    a_parameters, b_parameters = (flatten(_comparable(run)) for run in (a, b))
    differing = [key for key in {**a_parameters, **b_parameters} if a_parameters.get(key) != b_parameters.get(key)]
    shown = [f"{key} {a_parameters.get(key)!r} and {b_parameters.get(key)!r}" for key in differing[:_DIFFERENCES_SHOWN]]
    more = len(differing) - len(shown)
    what = "; ".join(shown) + (f"; and {more} more" if more > 0 else "") or "the environments' fingerprint"
    raise WrongUse(
        f"{a.id} and {b.id} were measured in different environments, so differences may not be due to the "
        f"subjects. Differing: {what}. To compare anyway: --across-environments"
    )


def _comparable(run: Run) -> dict[str, Any]:
    environment = {key: value for key, value in run.environment.items() if key != "fingerprint"}
    return {**environment, "lab": run.lab or "none"}
