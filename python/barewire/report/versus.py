# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Pairs of series to compare: a subject with a baseline in one run, or with itself in another run."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from barewire.errors import WrongUse
from barewire.models.naming import FLOOR, baseline_of
from barewire.results.floors import Floors
from barewire.results.quantities import has_own_sizes
from barewire.results.run import Place, Row, Run, Series
from barewire.stats.comparison import Comparison, Outcome, compare_over_sizes
from barewire.stats.confidence import CONFIDENCE

MARGIN = 0.02
_DIFFERENCES_SHOWN = 8
# Parameters that change what is measured but are in no row's name, with what runs without them have.
_SETTINGS: Mapping[str, Any] = {"cache": "on", "walk_bytes": None, "tuned": {}, "options": []}

# A series, and what it is compared with if that was measured.
MaybePair = tuple[Series, Series | None]


@dataclass(frozen=True)
class Settings:
    """How to compare: the difference that does not matter as a share, the confidence, and the floor's name."""

    margin: float = MARGIN
    confidence: float = CONFIDENCE
    floor: str = FLOOR


@dataclass(frozen=True)
class Versus:
    """`a` against `b` (series of the same test, pairs and size): A is the subject, B the baseline or the older run.

    `normalised` compares each launch's value divided by that of the floor in the same round, if both runs have a floor.
    `values` are what was compared.
    """

    a: Series
    b: Series
    result: Comparison
    normalised: Comparison | None = None
    values: tuple[Sequence[float], Sequence[float]] = ((), ())

    @property
    def deciding(self) -> Comparison:
        """The comparison that gives the verdict: by the floors if both runs have one."""
        return self.normalised or self.result

    @property
    def verdict(self) -> Outcome:
        """The verdict about A."""
        return self.deciding.verdict

    def to_json(self) -> dict[str, Any]:
        """One JSON object: what is compared, both medians, and the comparison."""
        return {
            **coordinates(self.a),
            "against": self.b.subject,
            "median_a": self.a.median,
            "median_b": self.b.median,
            **asdict(self.result),
            "normalised": None if self.normalised is None else asdict(self.normalised),
            "verdict": self.verdict,
        }


def has_baseline(run: Run, baseline: str) -> bool:
    """Whether the run has the baseline: that subject, or a library over that fabric."""
    subjects = {s.subject for s in run.series}
    return any(baseline_of(subject, baseline) in subjects for subject in subjects)


def compare_in_run(run: Run, baseline: str = "tcp", settings: Settings | None = None) -> list[Versus]:
    """Every other subject against `baseline`, per test and row; WrongUse when the run has no such subject.

    For MPI libraries `baseline` may be a fabric: then each library is compared with itself over that fabric.
    """
    return _compare(baseline_pairs(run, baseline), settings or Settings(), seed=run.seed)


def baseline_pairs(run: Run, baseline: str) -> list[MaybePair]:
    """Return every other subject's series with those of `baseline`; errors as `compare_in_run`."""
    if not has_baseline(run, baseline):
        subjects = sorted({s.subject for s in run.series})
        raise WrongUse(f"the run has no subject {baseline!r}; it has {', '.join(subjects) or 'none'}")
    known = {(s.subject, *_where(s)): s for s in run.series}
    compared = [s for s in run.series if s.subject != baseline_of(s.subject, baseline)]
    return [(s, known.get((baseline_of(s.subject, baseline), *_where(s)))) for s in compared]


def compare_variants(run: Run, variant: str, settings: Settings | None = None) -> list[Versus]:
    """Every other variant of a test against `variant`, per subject; WrongUse when the run has no such variant.

    Message sizes may depend on a kernel's variant; such sizes are ignored when matching.
    """
    return _compare(variant_pairs(run, variant), settings or Settings(), seed=run.seed)


def variant_pairs(run: Run, variant: str) -> list[MaybePair]:
    """Return the other variants of the tests that have `variant`, with it; errors as `compare_variants`."""
    variants = sorted({s.variant for s in run.series if s.variant})
    if variant not in variants:
        raise WrongUse(f"the run has no variant {variant!r}; it has {', '.join(variants) or 'none'}")
    known = {(s.subject, *_task(s)): s for s in run.series if s.variant == variant}
    tests = {s.test for s in known.values()}
    compared = [s for s in run.series if s.variant != variant and s.test in tests]
    return [(s, known.get((s.subject, *_task(s)))) for s in compared]


def compare_runs(
    new: Run, old: Run, settings: Settings | None = None, *, across_environments: bool = False
) -> list[Versus]:
    """Each subject of `new` against the same subject of `old`, per test and size, also normalised by their floors.

    WrongUse if the runs come from different environments or settings (unless allowed), or share no series.
    """
    if not across_environments:
        refuse_other_environment(new, old)
    settings = settings or Settings()
    in_old = {(s.subject, *_where(s)): s for s in old.series}
    floors = Floors(new, settings.floor), Floors(old, settings.floor)
    pairs = [(s, in_old.get((s.subject, *_where(s)))) for s in new.series]
    found = _compare(pairs, settings, seed=new.seed, floors=floors)
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


def coordinates(series: Series) -> dict[str, Any]:
    """What identifies a series, and its unit, for JSON documents."""
    row = series.row
    return {
        **series.place._asdict(),
        "variant": row.variant,
        "parameter_value": row.value,
        "message_bytes": row.message_bytes,
        "unit": series.unit,
        "subject": series.subject,
    }


def is_usable(series: Series) -> bool:
    """Whether ratios can be formed of its values: derived ones may be 0 or negative. WrongUse for what is no number."""
    if not all(isinstance(value, (int, float)) and math.isfinite(value) for value in series.launch_medians):
        raise WrongUse(
            f"{series.test}, {series.subject}, {series.message_bytes} B has a launch without a finite value: "
            "its run.json is damaged; measure again"
        )
    return bool(series.launch_medians) and min(series.launch_medians) > 0


def refuse_other_unit(a: Series, b: Series) -> None:
    """Raise WrongUse if two series of the same name are in different units."""
    if a.unit != b.unit:
        raise WrongUse(
            f"{a.test}, {a.subject}, {a.message_bytes} B is in {a.unit} on one side and in {b.unit} on the other, "
            "which cannot be compared"
        )


def refuse_other_environment(a: Run, b: Run) -> None:
    """Raise WrongUse with the differences if the runs come from different environments or settings."""
    prints = [run.environment.get("fingerprint") for run in (a, b)]
    is_same_machine = prints[0] is not None and prints[0] == prints[1]
    settings = _differences(*(_settings(run) for run in (a, b)))
    environments = [] if is_same_machine else _differences(*(flatten(_comparable(run)) for run in (a, b)))
    differing = [*settings, *environments]
    if is_same_machine and not differing:
        return
    shown = differing[:_DIFFERENCES_SHOWN]
    more = len(differing) - len(shown)
    what = "; ".join(shown) + (f"; and {more} more" if more > 0 else "") or "the environments' fingerprint"
    how = "with different settings" if is_same_machine else "in different environments"
    raise WrongUse(
        f"{a.id} and {b.id} were measured {how}, so differences may not be due to the "
        f"subjects. Differing: {what}. To compare anyway: --across-environments"
    )


def _settings(run: Run) -> dict[str, Any]:
    return {name: run.parameters.get(name, usual) for name, usual in _SETTINGS.items()}


def _differences(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[str]:
    return [f"{key} {a.get(key)!r} and {b.get(key)!r}" for key in {**a, **b} if a.get(key) != b.get(key)]


def _compare(
    candidates: Iterable[MaybePair],
    settings: Settings,
    *,
    seed: int,
    floors: tuple[Floors, Floors] | None = None,
) -> list[Versus]:
    # Holm's family: the sizes of one subject in one test and variant.
    families: dict[tuple[Place, str, str], list[tuple[Series, Series]]] = {}
    for s, against in candidates:
        if against is None:
            continue
        refuse_other_unit(s, against)
        if is_usable(s) and is_usable(against):
            families.setdefault((s.place, s.subject, s.variant), []).append((s, against))
    found = []
    for pairs in families.values():
        plain = [(a.launch_medians, b.launch_medians) for a, b in pairs]
        by_floors = [None if floors is None else _both(floors, a, b) for a, b in pairs]
        options: dict[str, Any] = {
            "lower_is_better": pairs[0][0].lower_is_better,
            "margin": settings.margin,
            "confidence": settings.confidence,
            "seed": seed,
        }
        results = compare_over_sizes(plain, **options)
        normalised = iter(compare_over_sizes([values for values in by_floors if values is not None], **options))
        found += [
            Versus(a, b, result, next(normalised) if values is not None else None, values or medians)
            for (a, b), result, values, medians in zip(pairs, results, by_floors, plain, strict=True)
        ]
    return found


def _both(floors: tuple[Floors, Floors], a: Series, b: Series) -> tuple[list[float], list[float]] | None:
    """Return both series' values divided by their run's floor; None unless both runs have one."""
    normalised_a, normalised_b = floors[0].normalised(a), floors[1].normalised(b)
    return (normalised_a, normalised_b) if normalised_a and normalised_b else None


def _where(series: Series) -> tuple[Place, Row]:
    return series.place, series.row


def _task(series: Series) -> tuple[Place, int | None, float | None]:
    """The task of a variant; without the message size if a kernel chooses it."""
    return series.place, None if has_own_sizes(series.test) else series.message_bytes, series.parameter_value


def _comparable(run: Run) -> dict[str, Any]:
    environment = {key: value for key, value in run.environment.items() if key != "fingerprint"}
    return {**environment, "lab": run.lab or "none"}
