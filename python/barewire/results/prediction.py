# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Predicts the times of patterns and kernels on P ranks from a model of two ranks."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, cast

import numpy as np

from barewire.models.collectives import ALGORITHMS
from barewire.models.costs import TwoRankCosts
from barewire.models.interpolation import Interpolated
from barewire.models.kernels import FFT_VARIANTS, RADIX_VARIANTS, FftVariant, fft_time, krylov_time, radix_time
from barewire.models.times import CannotSay, Estimate, Floats, Times, estimate
from barewire.results.computations import Computation, ranks_per_core
from barewire.results.functions import Function
from barewire.results.model import Model

MESSAGES = ("pingpong", "exchange", "ring")
WITH_COMPUTATION = ("fft", "radix", "krylov")
KERNELS = (*MESSAGES, *ALGORITHMS, *WITH_COMPUTATION)
# Messages this short take the same time.
_SHORT_BYTES = 64


@dataclass(frozen=True)
class Request:
    """What to predict. `message_bytes` is a message, a block, a sort's buffer or a halo; a transform has none.

    `parameter`: order of a transform, keys of a sort's rank, µs of computation of a Krylov iteration.
    """

    kernel: str
    ranks: int
    message_bytes: int = 0
    parameter: float | None = None
    variants: tuple[str, ...] | None = None


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

    def to_json(self) -> dict[str, Any]:
        """Return one JSON object."""
        return asdict(self)


def predict(model: Model, subject: str, request: Request, cores: int | None) -> Iterator[Prediction]:
    """Predict every way of one request; `cores` is the number that all ranks share, None if each has its own.

    CannotSay if the model lacks a function that is needed.
    """
    sharing = ranks_per_core(request.ranks, cores)
    costs = costs_of(model, subject, sharing)
    for way, times, sizes in _ways(model, request, costs):
        marks = [] if sharing == 1 else [f"{sharing} ranks share a core"]
        if any(not costs.covers(size) for size in sizes if size > _SHORT_BYTES):
            marks.append("beyond the measured sizes")
        yield Prediction(
            kernel=request.kernel,
            subject=subject,
            way=way,
            ranks=request.ranks,
            message_bytes=request.message_bytes,
            parameter=request.parameter,
            time_us=estimate(times, costs.launches),
            marks=tuple(marks),
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
    return TwoRankCosts(latency, curve("exchanged"), curve("gap"), curve("both_ways"), processor, sharing)


def _ways(model: Model, request: Request, costs: TwoRankCosts) -> Iterator[tuple[str, Floats, tuple[float, ...]]]:
    kernel, ranks, size = request.kernel, request.ranks, request.message_bytes
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
            own = _computation(model, request, variant, costs.ranks_per_core)
            order = int(request.parameter or 0)
            yield variant, *fft_time(costs, ranks, order, cast(FftVariant, variant), own)
    elif kernel == "radix":
        for variant in request.variants or RADIX_VARIANTS:
            own = _computation(model, request, variant, costs.ranks_per_core)
            yield variant, *radix_time(costs, ranks, int(request.parameter or 0), size, own)
    else:
        yield "iteration", *krylov_time(costs, ranks, size, request.parameter or 0.0)


def _computation(model: Model, request: Request, variant: str, sharing: int) -> Floats:
    """Return the draws of one rank's computation on a core of its own, in µs, from the nearest measured one."""
    found = [
        each
        for each in model.computations
        if each.kernel == request.kernel and each.parameter_value == request.parameter
    ]
    if not found:
        raise CannotSay(
            f"the computation of {request.kernel} {request.parameter:g} was not measured; "
            f"run `barewire mpi {request.kernel} -n 1` with it, and give that run too"
        )

    def distance(each: Computation) -> tuple[bool, int, float, float]:
        return (
            each.variant != variant,
            abs(each.ranks_per_core - sharing),
            abs(np.log(each.ranks / request.ranks)),
            float(np.median(each.launches_us)),
        )

    nearest = min(found, key=distance)
    times = Times.of({0: nearest.launches_us})
    # A transform is divided among its ranks; a sort has the same keys on each.
    share = nearest.ranks / request.ranks if request.kernel == "fft" else 1.0
    return times.draws(np.random.default_rng(1))[:, 0] * share / nearest.ranks_per_core


def _sum(first: Function, second: Function) -> Times:
    """Return the sum of two functions at the sizes that both have."""
    sizes: Sequence[int] = sorted(set(first.times.sizes) & set(second.times.sizes))
    if not sizes:
        raise CannotSay("Os and Or were measured at different sizes; measure logp")
    launches = min(first.times.launches, second.times.launches)
    values = first.times.at(sizes).values[:launches] + second.times.at(sizes).values[:launches]
    return Times(tuple(sizes), values)
