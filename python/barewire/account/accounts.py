# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The accounts of a capture: totals by layer, phase and pair, and what follows from them; pure."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from barewire.account.envelope import Envelope
from barewire.account.frame import Carrier, Event, Layers, Shape
from barewire.account.ledger import Counts, Phase

SCHEMA = "barewire-account/1"
_BAREWIRE = (Carrier.FRAMES, Carrier.DATAGRAMS)


@dataclass(frozen=True)
class Total:
    """Frames and bytes of some part of a capture."""

    frames: int
    layers: Layers

    @property
    def wire_bytes(self) -> int:
        """Bytes on the wire, with preamble, FCS and gap."""
        return sum(self.layers)

    @property
    def efficiency(self) -> float | None:
        """Payload as a fraction of the bytes on the wire; None without any."""
        return self.layers.payload / self.wire_bytes if self.wire_bytes else None

    def to_json(self) -> dict[str, Any]:
        """Return the total as a document."""
        return {
            "frames": self.frames,
            "wire_bytes": self.wire_bytes,
            "payload_bytes": self.layers.payload,
            "efficiency": self.efficiency,
            "layers_bytes": self.layers._asdict(),
        }


@dataclass(frozen=True)
class Accounts:
    """Where the bytes of a capture went."""

    capture: str
    phases: Mapping[Phase, Counts]
    first_s: float
    last_s: float
    is_complete: bool
    envelope: Envelope | None
    notes: tuple[str, ...]

    @property
    def duration_s(self) -> float:
        """Time from the first frame to the last."""
        return self.last_s - self.first_s

    @property
    def total(self) -> Total:
        """Return the whole capture's total."""
        return _total(self._everything())

    def of_phase(self, phase: Phase) -> Total:
        """Return a phase's total."""
        return _total((shape, count) for (_, _, shape), count in self.phases[phase].items())

    def pairs(self) -> list[tuple[str, str, Total]]:
        """Return source, destination and total of each pair of hosts, most bytes first."""
        shapes: defaultdict[tuple[str, str], Counter[Shape]] = defaultdict(Counter)
        for counts in self.phases.values():
            for (source, destination, shape), count in counts.items():
                shapes[source, destination][shape] += count
        totals = [(*pair, _total(found.items())) for pair, found in shapes.items()]
        return sorted(totals, key=lambda row: (-row[2].wire_bytes, row[0], row[1]))

    def repeated(self) -> dict[str, Total]:
        """Return the frames whose payload had been sent before, by what repeated it."""
        kinds = {"tcp": (Carrier.TCP,), "barewire": _BAREWIRE}
        return {
            name: _total(
                (shape, count)
                for shape, count in self._everything()
                if shape.layers.repeated and shape.carrier in carriers
            )
            for name, carriers in kinds.items()
        }

    def acknowledgements(self) -> Total:
        """Return the total of frames that only acknowledge."""
        return _total((shape, count) for shape, count in self._everything() if shape.event is Event.ACK)

    def typical(self, limit: int) -> list[tuple[Shape, int]]:
        """Return the commonest frames with messages between ranks, as shape and number."""
        shapes: Counter[Shape] = Counter()
        for (_, _, shape), count in self.phases[Phase.DATA].items():
            if shape.event is Event.PAYLOAD and not shape.layers.repeated:
                shapes[shape] += count
        return sorted(shapes.items(), key=lambda row: (-row[1], -sum(row[0].layers)))[:limit]

    def to_json(self, typical: int) -> dict[str, Any]:
        """Return the accounts as a document."""
        acknowledgements, total = self.acknowledgements(), self.total
        return {
            "schema": SCHEMA,
            "capture": self.capture,
            "complete": self.is_complete,
            "duration_s": self.duration_s,
            "total": total.to_json(),
            "phases": {phase.value: self.of_phase(phase).to_json() for phase in Phase},
            "pairs": [{"from": source, "to": target} | found.to_json() for source, target, found in self.pairs()],
            "repeated": {name: found.to_json() for name, found in self.repeated().items()},
            "acknowledgements": acknowledgements.to_json()
            | {
                "frames_share": _share(acknowledgements.frames, total.frames),
                "wire_bytes_share": _share(acknowledgements.wire_bytes, total.wire_bytes),
            },
            "typical_frames": [
                {"carrier": shape.carrier.value, "frames": count, "wire_bytes": sum(shape.layers)}
                | {"layers_bytes": shape.layers._asdict()}
                for shape, count in self.typical(typical)
            ],
            "mpi_envelope": None if self.envelope is None else self.envelope.to_json(),
            "notes": list(self.notes),
        }

    def _everything(self) -> Iterable[tuple[Shape, int]]:
        for counts in self.phases.values():
            for (_, _, shape), count in counts.items():
                yield shape, count


def _total(shapes: Iterable[tuple[Shape, int]]) -> Total:
    frames, sums = 0, [0] * len(Layers._fields)
    for shape, count in shapes:
        frames += count
        for index, layer_bytes in enumerate(shape.layers):
            sums[index] += layer_bytes * count
    return Total(frames, Layers(*sums))


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None
