# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The latency budget: the layers that an MPI message passes on its way to the wire, and what each of them adds."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from barewire.models.naming import FLOOR, LIBFABRIC, OWN_PROVIDER, read_mpi_subject
from barewire.stats.confidence import CONFIDENCE
from barewire.stats.steps import Step, steps

# From the wire upwards; each layer does all that the previous one does, and more.
PATH = (FLOOR, "raw", "llc1", "llc2", "endpoint", "messages", LIBFABRIC)
# The same two interfaces over the kernel's TCP.
YARDSTICKS = ("tcp", f"{LIBFABRIC}-tcp")


@dataclass(frozen=True)
class Layer:
    """A subject as a layer: `below` is the layer under it, None for the first one and for yardsticks."""

    subject: str
    below: str | None
    step: Step

    @property
    def is_library(self) -> bool:
        """Whether this is an MPI library, one of several on the same layer."""
        return read_mpi_subject(self.subject) is not None


@dataclass(frozen=True)
class Budget:
    """One message size: the path from the first layer up, the MPI libraries on top of it, and TCP's totals; in µs.

    `limit_us` is the time that the frames occupy a link of known rate, a lower bound for all layers.
    """

    message_bytes: int
    path: tuple[Layer, ...]
    libraries: tuple[Layer, ...]
    yardsticks: tuple[Layer, ...]
    limit_us: float | None = None

    @property
    def best(self) -> Layer:
        """The fastest subject that programs use: an MPI library, or the highest layer without one."""
        return min(self.libraries, key=lambda layer: layer.step.total) if self.libraries else self.path[-1]

    @property
    def best_yardstick(self) -> Layer | None:
        """The fastest over TCP of the same kind as `best`: an MPI library for an MPI library."""
        alike = [layer for layer in self.yardsticks if layer.is_library == self.best.is_library]
        return min(alike or self.yardsticks, key=lambda layer: layer.step.total, default=None)


def budget(
    message_bytes: int,
    medians: Mapping[str, Sequence[float]],
    limit_us: float | None = None,
    confidence: float = CONFIDENCE,
) -> Budget:
    """Arrange the measurements of one message size; `medians` has each subject's medians, one per round.

    A layer that was not measured is skipped, so that the next one's step includes it. ValueError if no layer of the
    path was measured.
    """
    path = [name for name in PATH if name in medians]
    if not path:
        raise ValueError(f"no layer of the path was measured; these are: {', '.join(PATH)}")
    below = dict(zip(path, [None, *path[:-1]], strict=True))
    libraries = [name for name in medians if _fabric(name) == OWN_PROVIDER]
    yardsticks = [name for name in medians if name in YARDSTICKS or _fabric(name) not in (None, OWN_PROVIDER)]
    layer_below: dict[str, str | None] = {**below, **dict.fromkeys(libraries, path[-1]), **dict.fromkeys(yardsticks)}
    layer_steps = steps({name: medians[name] for name in layer_below}, layer_below, confidence=confidence)

    def layers(names: Iterable[str]) -> tuple[Layer, ...]:
        return tuple(Layer(name, layer_below[name], layer_steps[name]) for name in names)

    ordered = sorted(libraries, key=lambda name: layer_steps[name].total)
    # First sockets and libfabric, which is above them, then the libraries.
    rank = {name: position for position, name in enumerate(YARDSTICKS)}
    ordered_yardsticks = sorted(yardsticks, key=lambda name: (rank.get(name, len(rank)), layer_steps[name].total))
    return Budget(message_bytes, layers(path), layers(ordered), layers(ordered_yardsticks), limit_us)


def _fabric(subject: str) -> str | None:
    mpi = read_mpi_subject(subject)
    return None if mpi is None else mpi.fabric
