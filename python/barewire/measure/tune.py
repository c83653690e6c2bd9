# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Finds tuning values for a machine: each compared with its default, interleaved, and kept if a second run agrees."""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from barewire.measure.launch import Effort
from barewire.measure.sites import Site
from barewire.measure.tune_eager import EAGER_BYTES, Crossing, crossing_of, eager_bench, eager_cells, eager_variants
from barewire.measure.tune_trials import Bench, Cells, Launcher, Trial, Values
from barewire.stats.confidence import CONFIDENCE, LAUNCHES_FOR_INTERVAL

Progress = Callable[[int, int, str], None]

_KIB, _MIB = 1 << 10, 1 << 20


@dataclass(frozen=True)
class Group:
    """Values that are tuned on one transport, with their candidates besides the defaults.

    A candidate may not improve one cell and worsen another.
    """

    name: str
    transport: str
    candidates: Mapping[str, tuple[int, ...]]
    cells: Cells
    on_one_host: bool = False


FRAMES = Group(
    "frames",
    "endpoint",
    {
        "acknowledge_every": (8, 16, 24, 31),
        "ring_bytes": (_MIB, 2 * _MIB, 4 * _MIB, 8 * _MIB),
        "window": (32, 48, 63),
        "acknowledge_delay_us": (25, 50, 100, 200),
        "slots": (256, 1024, 8192),
        "send_descriptors": (128, 256, 512),
    },
    (("pingpong", (64, 16 * _KIB)), ("stream", (64, 64 * _KIB))),
)
PIPE = Group(
    "shared memory",
    "messages",
    {
        "pipe_ring_bytes": (64 * _KIB, 128 * _KIB, 256 * _KIB, 512 * _KIB, _MIB),
        "fetched_bytes": (16 * _KIB, 32 * _KIB, 64 * _KIB, 256 * _KIB),
    },
    (("pingpong", (64, 64 * _KIB)), ("stream", (64, 64 * _KIB, _MIB))),
    on_one_host=True,
)
EAGER = "eager limit"
_QUICK = ("acknowledge_every", "ring_bytes")


@dataclass(frozen=True)
class TunePlan:
    """Amount of measurement: launches of each value and their length; confidence of what is found better or worse.

    `defaults` are the endpoints'; `kept` are the file's current values.
    """

    seed: int
    defaults: Values
    kept: Values
    quick: bool = False
    confidence: float = CONFIDENCE
    launches: int = LAUNCHES_FOR_INTERVAL + 2
    effort: Effort = field(default_factory=lambda: Effort(samples=2000, seconds=0.1, warmup=200, blocks=5))

    @property
    def base(self) -> Values:
        """The reference of candidates: defaults of the tuned values, and the file's values of all others."""
        return {**self.kept, **{name: self.defaults[name] for name in self.names}}

    @property
    def groups(self) -> tuple[Group, ...]:
        """The groups with their candidates, without the defaults."""
        groups = (
            (replace(FRAMES, candidates={name: FRAMES.candidates[name] for name in _QUICK}),)
            if self.quick
            else (FRAMES, PIPE)
        )
        return tuple(replace(group, candidates=self._candidates(group)) for group in groups)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all tuned values."""
        names = tuple(name for group in self.groups for name in group.candidates)
        return names if self.quick else (*names, EAGER_BYTES)

    def _candidates(self, group: Group) -> dict[str, tuple[int, ...]]:
        return {
            name: tuple(value for value in values if value != self.defaults[name])
            for name, values in group.candidates.items()
        }


@dataclass(frozen=True)
class Findings:
    """Results of one group: each candidate's trial, the chosen values, and a second run of all chosen ones together."""

    group: str
    trials: tuple[Trial, ...]
    chosen: Values
    confirmation: Trial | None
    # For the eager limit: the crossover of both protocols.
    crossings: tuple[Crossing, ...] = ()

    @property
    def values(self) -> Values:
        """The values to write to the file; empty if the defaults are as good."""
        return self.chosen if self.confirmation is not None and self.confirmation.is_better else {}


@dataclass(frozen=True)
class Tuned:
    """Results of all groups."""

    defaults: Values
    findings: tuple[Findings, ...]

    @property
    def values(self) -> Values:
        """The values to write to the file."""
        return {name: value for group in self.findings for name, value in group.values.items()}


def tune(site: Site, plan: TunePlan, progress: Progress = lambda done, total, label: None) -> Tuned:
    """Measure every candidate against its default, then each group's chosen values against the defaults once more."""
    launcher, steps = Launcher(random.Random(plan.seed)), _Steps(plan, progress)
    findings = [_tune_group(site, plan, group, launcher, steps) for group in plan.groups]
    if not plan.quick:
        findings.append(_tune_eager(site, plan, launcher, steps))
    return Tuned(plan.defaults, tuple(findings))


class _Steps:
    """Progress: one step for each variant of each measurement."""

    def __init__(self, plan: TunePlan, progress: Progress) -> None:
        variants = sum(len(values) + 1 for group in plan.groups for values in group.candidates.values())
        # A second run of each group; for the eager limit two curves, a trial and a second run.
        self.total = variants + 2 * len(plan.groups) + (0 if plan.quick else 6)
        self.done, self.progress = 0, progress

    def begin(self, label: str, variants: int) -> None:
        """Announce that `variants` variants are about to be measured."""
        self.progress(self.done, self.total, label)
        self.done += variants


def _tune_group(site: Site, plan: TunePlan, group: Group, launcher: Launcher, steps: _Steps) -> Findings:
    group_site = site.on_one_host() if group.on_one_host else site
    bench = Bench(group_site, group.transport, group.cells, plan.effort, plan.launches, plan.confidence)
    trials: list[Trial] = []
    for name, values in group.candidates.items():
        steps.begin(name, len(values) + 1)
        trials += launcher.trials(bench, plan.base, [{name: value} for value in values])
    return _confirmed(group.name, trials, plan, bench, launcher, steps)


def _tune_eager(site: Site, plan: TunePlan, launcher: Launcher, steps: _Steps) -> Findings:
    """Propose the crossover as the limit; a trial against the default decides."""
    steps.begin(EAGER, 2)
    bench = eager_bench(site, plan.effort, plan.launches, plan.confidence)
    eager, rendezvous = launcher.medians(bench, [{**plan.base, **variant} for variant in eager_variants()])
    crossings = tuple(crossing_of(test, eager, rendezvous, plan.confidence) for test, _ in bench.cells)
    default = plan.defaults[EAGER_BYTES]
    proposed = min(crossing.limit for crossing in crossings)
    cells = eager_cells(default, proposed)
    if not cells:
        return Findings(EAGER, (), {}, None, crossings)
    steps.begin(f"{EAGER} {proposed}", 2)
    narrowed = replace(bench, cells=cells)
    trials = launcher.trials(narrowed, plan.base, [{EAGER_BYTES: proposed}])
    confirmed = _confirmed(EAGER, trials, plan, narrowed, launcher, steps)
    return replace(confirmed, crossings=crossings)


def _confirmed(
    name: str, trials: Sequence[Trial], plan: TunePlan, bench: Bench, launcher: Launcher, steps: _Steps
) -> Findings:
    chosen = choose(trials)
    steps.begin(f"{name}, once more", 2)
    if not chosen:
        return Findings(name, tuple(trials), {}, None)
    (confirmation,) = launcher.trials(bench, plan.base, [chosen])
    return Findings(name, tuple(trials), chosen, confirmation)


def choose(trials: Sequence[Trial]) -> dict[str, int]:
    """Return the best candidate of each value that is better than the default."""
    best: dict[str, Trial] = {}
    for trial in trials:
        (name,) = trial.values
        if trial.is_better and (name not in best or trial.score < best[name].score):
            best[name] = trial
    return {name: trial.values[name] for name, trial in best.items()}
