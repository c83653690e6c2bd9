# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What an MPI library adds to each message in its TCP stream, from the size of the program's messages; pure.

TCP carries a stream without boundaries, and each library has its own headers in it. But a message that a program waits
for, as in a ping-pong, is a segment of its own. If all messages have one size, the commonest segment that is at least
as long is one message, and what it has more is the envelope. Shorter segments are the library's own: connecting,
synchronising.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from barewire.account.frame import Carrier, Event
from barewire.account.ledger import Counts, Phase
from barewire.errors import WrongUse


@dataclass(frozen=True)
class Envelope:
    """Bytes that a library adds to a message of `message_bytes`, and in how many segments this was seen."""

    message_bytes: int
    envelope_bytes: int
    segments: int

    def to_json(self) -> dict[str, Any]:
        """Return it as a document."""
        return asdict(self)


def find(counts: Counts, message_bytes: int) -> Envelope:
    """Find the envelope in the ranks' counts of the data phase; WrongUse if no segment holds a message."""
    lengths: Counter[int] = Counter()
    for (_, _, shape), count in counts.items():
        if shape.carrier is Carrier.TCP and shape.event is Event.PAYLOAD and shape.layers.payload:
            lengths[shape.layers.payload] += count
    fitting = {length: count for length, count in lengths.items() if length >= message_bytes}
    if not lengths:
        raise WrongUse("--message-bytes: no TCP connection of this capture carries messages between ranks")
    if not fitting:
        raise WrongUse(
            f"--message-bytes {message_bytes}: the longest segment has {max(lengths)} bytes, so a message is more than "
            "one: capture a ping-pong of shorter messages"
        )
    length = max(fitting, key=lambda length: (fitting[length], -length))
    return Envelope(message_bytes, length - message_bytes, fitting[length])


def apply(phases: Mapping[Phase, Counts], envelope: Envelope) -> dict[Phase, Counts]:
    """Return the same counts with payloads of the ranks' TCP connections divided into envelope and message."""
    data: Counts = Counter()
    length = envelope.message_bytes + envelope.envelope_bytes
    for (source, destination, shape), count in phases[Phase.DATA].items():
        layers = shape.layers
        if shape.carrier is Carrier.TCP:
            whole, rest = divmod(layers.payload, length)
            # A longer segment that is not a number of messages stays as it is: nothing says what is in it.
            if layers.payload < length or not rest:
                mpi = layers.payload - whole * envelope.message_bytes
                layers = layers._replace(mpi=mpi, payload=layers.payload - mpi)
        data[source, destination, shape._replace(layers=layers)] += count
    return dict(phases) | {Phase.DATA: data}
