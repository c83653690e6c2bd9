# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Find values that suit a machine: each against its default, interleaved; kept only if a second run agrees."""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from barewire.measure.launch import Effort
from barewire.measure.sites import Site
from barewire.measure.tune_eager import EAGER_BYTES, Crossing, crossing_of, eager_bench, eager_cells, eager_variants
from barewire.measure.tune_trials import Bench, Cells, Launcher, Trial, Values
from barewire.stats import LAUNCHES_FOR_INTERVAL

Progress = Callable[[int, int, str], None]

_KIB, _MIB = 1 << 10, 1 << 20


@dataclass(frozen=True)
class Group:
    """Values that are looked at on one transport, and what is tried besides their defaults.

    What one of them gains in one cell it may not lose in another.
    """

    name: str
    transport: str
    tried: Mapping[str, tuple[int, ...]]
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
        "slots": (128, 256, 512),
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
    """How much is measured: launches of each value, and how long each is.

    `defaults` are the endpoints' own; `kept` is what stands in the file now.
    """

    seed: int
    defaults: Values
    kept: Values
    quick: bool = False
    launches: int = LAUNCHES_FOR_INTERVAL + 2
    effort: Effort = field(default_factory=lambda: Effort(samples=2000, seconds=0.1, warmup=200, blocks=5))

    @property
    def base(self) -> Values:
        """What candidates are compared with: defaults, and of what is not looked at what will stay in the file."""
        return {**self.kept, **{name: self.defaults[name] for name in self.names}}

    @property
    def groups(self) -> tuple[Group, ...]:
        """Those whose values are tried as they stand here, without the defaults among them."""
        groups = (
            (replace(FRAMES, tried={name: FRAMES.tried[name] for name in _QUICK}),) if self.quick else (FRAMES, PIPE)
        )
        return tuple(replace(group, tried=self._others(group)) for group in groups)

    @property
    def names(self) -> tuple[str, ...]:
        """All values that are looked at."""
        own = tuple(name for group in self.groups for name in group.tried)
        return own if self.quick else (*own, EAGER_BYTES)

    def _others(self, group: Group) -> dict[str, tuple[int, ...]]:
        # Of a quick run the window is not looked at, and must go with what is.
        most = self.kept["window"] // 2 if self.quick else max(FRAMES.tried["acknowledge_every"])
        return {
            name: tuple(
                value
                for value in values
                if value != self.defaults[name] and (name != "acknowledge_every" or value <= most)
            )
            for name, values in group.tried.items()
        }


@dataclass(frozen=True)
class Findings:
    """What came of one group: what each candidate did, what was chosen, and the second run of all that together."""

    group: str
    trials: tuple[Trial, ...]
    chosen: Values
    confirmation: Trial | None
    # Of the eager limit: where the one way begins to cost less than the other.
    crossings: tuple[Crossing, ...] = ()

    @property
    def values(self) -> Values:
        """What is worth writing down; nothing where the defaults are as good."""
        return self.chosen if self.confirmation is not None and self.confirmation.is_better else {}


@dataclass(frozen=True)
class Tuned:
    """What came of all groups."""

    defaults: Values
    findings: tuple[Findings, ...]

    @property
    def values(self) -> Values:
        """What is worth writing down."""
        return {name: value for one in self.findings for name, value in one.values.items()}


def tune(site: Site, plan: TunePlan, progress: Progress = lambda done, total, doing: None) -> Tuned:
    """Measure every candidate beside its default, then what was chosen of each group once more beside the defaults."""
    launcher, steps = Launcher(random.Random(plan.seed)), _Steps(plan, progress)
    found = [_tune_group(site, plan, group, launcher, steps) for group in plan.groups]
    if not plan.quick:
        found.append(_tune_eager(site, plan, launcher, steps))
    return Tuned(plan.defaults, tuple(found))


class _Steps:
    """How far it has come: one step for each variant of each measurement."""

    def __init__(self, plan: TunePlan, progress: Progress) -> None:
        variants = sum(len(values) + 1 for group in plan.groups for values in group.tried.values())
        # A second run of each group; of the eager limit its two curves, a trial and a second run.
        self.total = variants + 2 * len(plan.groups) + (0 if plan.quick else 6)
        self.done, self.progress = 0, progress

    def begin(self, doing: str, variants: int) -> None:
        """So many variants are about to be measured."""
        self.progress(self.done, self.total, doing)
        self.done += variants


def _tune_group(site: Site, plan: TunePlan, group: Group, launcher: Launcher, steps: _Steps) -> Findings:
    place = site.on_one_host() if group.on_one_host else site
    bench = Bench(place, group.transport, group.cells, plan.effort, plan.launches)
    trials: list[Trial] = []
    for name, values in group.tried.items():
        steps.begin(name, len(values) + 1)
        trials += launcher.trials(bench, plan.base, [{name: value} for value in values])
    return _confirmed(group.name, trials, plan, bench, launcher, steps)


def _tune_eager(site: Site, plan: TunePlan, launcher: Launcher, steps: _Steps) -> Findings:
    """The crossover proposes a limit, and a trial beside the default decides."""
    steps.begin(EAGER, 2)
    bench = eager_bench(site, plan.effort, plan.launches)
    eagerly, announced = launcher.medians(bench, [{**plan.base, **one} for one in eager_variants()])
    crossings = tuple(crossing_of(test, eagerly, announced) for test, _ in bench.cells)
    default = plan.defaults[EAGER_BYTES]
    proposed = min(crossing.limit for crossing in crossings)
    cells = eager_cells(default, proposed)
    if not cells:
        return Findings(EAGER, (), {}, None, crossings)
    steps.begin(f"{EAGER} {proposed}", 2)
    narrowed = replace(bench, cells=cells)
    trials = launcher.trials(narrowed, plan.base, [{EAGER_BYTES: proposed}])
    found = _confirmed(EAGER, trials, plan, narrowed, launcher, steps)
    return replace(found, crossings=crossings)


def _confirmed(
    name: str, trials: Sequence[Trial], plan: TunePlan, bench: Bench, launcher: Launcher, steps: _Steps
) -> Findings:
    chosen = choose(trials, plan.base)
    steps.begin(f"{name}, once more", 2)
    if not chosen:
        return Findings(name, tuple(trials), {}, None)
    (again,) = launcher.trials(bench, plan.base, [chosen])
    return Findings(name, tuple(trials), chosen, again)


def choose(trials: Sequence[Trial], defaults: Values) -> dict[str, int]:
    """Of each value the best candidate, if any is better than the default; none may break a rule between values."""
    best: dict[str, Trial] = {}
    for trial in trials:
        (name,) = trial.values
        if trial.is_better and (name not in best or trial.score < best[name].score):
            best[name] = trial
    chosen = {name: trial.values[name] for name, trial in best.items()}
    related = ("window", "acknowledge_every")
    if not any(name in chosen for name in related):
        return chosen
    window, every = (chosen.get(name, defaults[name]) for name in related)
    if every > window // 2:
        # The engine refuses this pair: the one of the two that gains more is kept.
        worse = max(related, key=lambda name: best[name].score if name in best else 0.0)
        del chosen[worse]
    return chosen
