# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Predicts the times of patterns and kernels on P ranks from a model of two ranks."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, cast

import numpy as np

from barewire.models.collectives import ALGORITHMS
from barewire.models.costs import TwoRankCosts
from barewire.models.interpolation import Interpolated
from barewire.models.kernels import (
    FFT_VARIANTS,
    KRYLOV_VARIANTS,
    RADIX_VARIANTS,
    FftVariant,
    Grid,
    KrylovVariant,
    fft_time,
    krylov_time,
    radix_time,
)
from barewire.models.naming import mtu_of
from barewire.models.ports import Ports
from barewire.models.times import CannotSay, Estimate, Floats, Times, estimate
from barewire.results.computations import Computation, ranks_per_core
from barewire.results.functions import Function
from barewire.results.model import Model
from barewire.results.quantities import is_weak
from barewire.stats.confidence import CONFIDENCE, with_interval_names

MESSAGES = ("pingpong", "exchange", "ring")
WITH_COMPUTATION = ("fft", "radix", "krylov")
KERNELS = (*MESSAGES, *ALGORITHMS, *WITH_COMPUTATION)
# Of a link of which a table tells only the rate.
_MTU = 1500


@dataclass(frozen=True)
class Request:
    """What to predict. `message_bytes` is a message, a block or a sort's buffer; a transform and a solver have none.

    `parameter`: order of a transform, keys of a sort's rank, side of a solver's grid, of which `grid` is the name in
    records. `compute_us`: the solver's computation in an iteration on each rank, instead of a measured one.
    """

    kernel: str
    ranks: int
    message_bytes: int = 0
    parameter: float | None = None
    variants: tuple[str, ...] | None = None
    grid: str = ""
    compute_us: float | None = None


@dataclass(frozen=True)
class Prediction:
    """The time of one execution; `way` is the algorithm or variant, `marks` say how far it leaves what was measured."""

    kernel: str
    subject: str
    way: str
    ranks: int
    message_bytes: int
    parameter: float | None
    time_us: Estimate
    marks: tuple[str, ...]
    grid: str = ""
    confidence: float = CONFIDENCE

    def to_json(self) -> dict[str, Any]:
        """Return one JSON object."""
        plain = {key: value for key, value in asdict(self).items() if key != "confidence"}
        return dict(with_interval_names(plain, self.confidence))


def predict(
    model: Model, subject: str, request: Request, cores: int | None, confidence: float = CONFIDENCE
) -> Iterator[Prediction]:
    """Predict every way of one request; `cores` is the number that all ranks share, None if each has its own.

    CannotSay if the model lacks a function that is needed.
    """
    sharing = ranks_per_core(request.ranks, cores)
    costs = costs_of(model, subject, sharing)
    # Messages are those of two ranks.
    measured = max((2, *(each.ranks for each in model.computations if each.kernel == request.kernel)))
    for way, times, sizes in _ways(model, request, costs):
        marks = [] if sharing == 1 else [f"{sharing} ranks share a core"]
        if not all(map(costs.covers, sizes)):
            marks.append("beyond the measured sizes")
        if request.ranks > measured:
            marks.append(f"more than the {measured} ranks measured")
        yield Prediction(
            kernel=request.kernel,
            subject=subject,
            way=way,
            ranks=request.ranks,
            message_bytes=request.message_bytes,
            parameter=request.parameter,
            time_us=estimate(times, costs.launches, confidence),
            marks=tuple(marks),
            grid=request.grid,
            confidence=confidence,
        )


def costs_of(model: Model, subject: str, sharing: int) -> TwoRankCosts:
    """Return what messages of a subject cost, with `sharing` ranks on each core."""
    functions = model.functions.get(subject, {})
    if "latency" not in functions:
        raise CannotSay(f"no latency of {subject} between two ranks was measured; run `barewire mpi pingpong` or logp")
    generator = np.random.default_rng(0)

    def curve(name: str) -> Interpolated | None:
        function = functions.get(name)
        return None if function is None else Interpolated.through(function.times, generator)

    processor = None
    if "send" in functions and "receive" in functions:
        processor = Interpolated.through(_sum(functions["send"], functions["receive"]), generator)
    latency = Interpolated.through(functions["latency"].times, generator)
    mtu = mtu_of(subject) or (model.mtu if isinstance(model.mtu, int) else None) or _MTU
    ports = None if model.rate_bit_s is None else Ports(model.rate_bit_s, mtu)
    return TwoRankCosts(latency, curve("exchanged"), curve("gap"), curve("both_ways"), processor, sharing, ports)


def _ways(model: Model, request: Request, costs: TwoRankCosts) -> Iterator[tuple[str, Floats, tuple[float, ...]]]:
    kernel, ranks, size = request.kernel, request.ranks, request.message_bytes
    if ranks == 1 and kernel not in WITH_COMPUTATION:
        raise CannotSay("one rank has nobody to send messages to")
    if kernel == "pingpong":
        yield "one way", costs.one_way(size), (size,)
    elif kernel == "exchange":
        yield "both ways", costs.exchange(size), (size,)
    elif kernel == "ring":
        yield "both neighbours", np.minimum(2 * costs.exchange(size), costs.all_at_once(2, size)), (size,)
    elif kernel in ALGORITHMS:
        for algorithm in ALGORITHMS[kernel]:
            yield algorithm.name, algorithm.time(costs, ranks, size), algorithm.sizes(ranks, size)
    elif kernel == "fft":
        for variant in request.variants or FFT_VARIANTS:
            own, _ = _computation(model, request, variant, costs)
            order = int(request.parameter or 0)
            yield variant, *fft_time(costs, ranks, order, cast(FftVariant, variant), own)
    elif kernel == "radix":
        for variant in request.variants or RADIX_VARIANTS:
            own, _ = _computation(model, request, variant, costs)
            yield variant, *radix_time(costs, ranks, int(request.parameter or 0), size, own)
    else:
        grid = Grid.of(request.grid, int(request.parameter or 0))
        for variant in request.variants or KRYLOV_VARIANTS:
            own, stencil = _computation(model, request, variant, costs)
            yield variant, *krylov_time(costs, ranks, grid, cast(KrylovVariant, variant), own, stencil)


def _computation(model: Model, request: Request, variant: str, costs: TwoRankCosts) -> tuple[Floats, Floats]:
    """Return the draws of one rank's computation on a core of its own, in µs, from the nearest measured one.

    And those of the part that is a Krylov iteration's product, as far as it is known.
    """
    none = np.zeros(len(costs.latency.draws))
    if request.compute_us is not None:
        return none + request.compute_us, none
    found = [
        each
        for each in model.computations
        if (each.kernel, each.parameter_value) == (request.kernel, request.parameter)
        and (not request.grid or each.parameter == request.grid)
    ]
    if not found:
        raise CannotSay(
            f"the computation of {request.kernel} {request.parameter:g} was not measured; "
            f"run `barewire mpi {request.kernel} -n 1` with it, and give that run too"
        )

    def distance(each: Computation) -> tuple[bool, int, float, float]:
        return (
            each.variant != variant,
            abs(each.ranks_per_core - costs.ranks_per_core),
            abs(np.log(each.ranks / request.ranks)),
            float(np.median(each.launches_us)),
        )

    nearest = min(found, key=distance)
    # A problem of all ranks together is divided among them.
    share = 1.0 if is_weak(request.kernel, nearest.parameter) else nearest.ranks / request.ranks

    def alone(launches_us: Sequence[float]) -> Floats:
        draws = Times.of({0: launches_us}).draws(np.random.default_rng(1))[:, 0]
        return draws * share / nearest.ranks_per_core

    return alone(nearest.launches_us), alone(nearest.stencil_us) if nearest.stencil_us else none


def _sum(first: Function, second: Function) -> Times:
    """Return the sum of two functions at the sizes that both have."""
    sizes: Sequence[int] = sorted(set(first.times.sizes) & set(second.times.sizes))
    if not sizes:
        raise CannotSay("Os and Or were measured at different sizes; measure logp")
    launches = min(first.times.launches, second.times.launches)
    values = first.times.at(sizes).values[:launches] + second.times.at(sizes).values[:launches]
    return Times(tuple(sizes), values)
