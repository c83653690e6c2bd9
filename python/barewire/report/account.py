# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Tables of a capture's accounts."""

from collections.abc import Iterable

from rich.markup import escape
from rich.table import Table

from barewire.account.accounts import Accounts, Total
from barewire.account.ledger import Phase

# What each of `Layers` is called.
LAYER_NAMES = (
    "Ethernet",
    "padding",
    "VLAN tags",
    "ARP",
    "IP",
    "TCP",
    "UDP",
    "LLC",
    "Barewire",
    "authentication",
    "message header",
    "MPI envelope",
    "payload",
    "repeated payload",
    "launcher",
    "other",
)
_PAIRS_SHOWN = 20


def summary(accounts: Accounts) -> str:
    """Return what the accounts say, in sentences."""
    total, data = accounts.total, accounts.of_phase(Phase.DATA)
    acknowledgements = accounts.acknowledgements()
    lines = [
        f"{total.frames} frames, {_bytes(total.wire_bytes)} on the wire, in {accounts.duration_s:.3f} s. "
        f"Payload: {_bytes(total.layers.payload)}, {percent_of(total.efficiency)}; "
        f"{percent_of(data.efficiency)} of what was sent while there was data.",
        f"Only acknowledging: {acknowledgements.frames} frames, {_bytes(acknowledgements.wire_bytes)}, "
        f"{percent_of(_part(acknowledgements.wire_bytes, total.wire_bytes))}.",
    ]
    for name, found in accounts.repeated().items():
        if found.frames:
            lines.append(
                f"Repeated by {'TCP' if name == 'tcp' else 'Barewire'}: {found.frames} frames with "
                f"{_bytes(found.layers.repeated)} of payload."
            )
    if (envelope := accounts.envelope) is not None:
        lines.append(
            f"The MPI library adds {envelope.envelope_bytes} B to a message of {envelope.message_bytes} B "
            f"in TCP's stream ({envelope.segments} segments)."
        )
    return "\n".join(lines)


def account_tables(accounts: Accounts, typical: int) -> Iterable[Table]:
    """Yield the tables: layers by phase, pairs, commonest frames."""
    yield _layers(accounts)
    yield _pairs(accounts)
    if typical and accounts.typical(1):
        yield _typical(accounts, typical)


def _layers(accounts: Accounts) -> Table:
    table = _table("bytes by layer and phase", "layer")
    phases = {phase: accounts.of_phase(phase) for phase in Phase}
    total = accounts.total
    for phase in Phase:
        table.add_column(phase.value, justify="right")
    table.add_column("total", justify="right")
    table.add_column("share", justify="right")
    for index, name in enumerate(LAYER_NAMES):
        if total.layers[index]:
            numbers = [found.layers[index] for found in (*phases.values(), total)]
            table.add_row(name, *map(str, numbers), percent_of(_part(numbers[-1], total.wire_bytes)))
    table.add_section()
    everything: tuple[Total, ...] = (*phases.values(), total)
    table.add_row("on the wire", *(str(found.wire_bytes) for found in everything), percent_of(1.0))
    table.add_row("frames", *(str(found.frames) for found in everything), "")
    table.add_row("efficiency", *(percent_of(found.efficiency) for found in everything), "")
    return table


def _pairs(accounts: Accounts) -> Table:
    table = _table("pairs of hosts, most bytes first", "from", "to")
    for heading in ("frames", "on the wire", "payload", "repeated", "efficiency"):
        table.add_column(heading, justify="right")
    pairs = accounts.pairs()
    for source, target, found in pairs[:_PAIRS_SHOWN]:
        layers = found.layers
        numbers = (found.frames, found.wire_bytes, layers.payload, layers.repeated)
        table.add_row(escape(source), escape(target), *map(str, numbers), percent_of(found.efficiency))
    if len(pairs) > _PAIRS_SHOWN:
        table.caption = f"{len(pairs) - _PAIRS_SHOWN} more with --json"
    return table


def _typical(accounts: Accounts, limit: int) -> Table:
    table = _table("commonest frames with messages, bytes of each", "layer")
    shapes = accounts.typical(limit)
    for shape, count in shapes:
        table.add_column(f"{shape.carrier.value}\n{count} frames", justify="right")
    for index, name in enumerate(LAYER_NAMES):
        numbers = [shape.layers[index] for shape, _ in shapes]
        if any(numbers):
            table.add_row(name, *map(str, numbers))
    table.add_section()
    table.add_row("on the wire", *(str(sum(shape.layers)) for shape, _ in shapes))
    return table


def _table(title: str, *headings: str) -> Table:
    table = Table(title=title, title_justify="left")
    for heading in headings:
        table.add_column(heading)
    return table


def _bytes(count: int) -> str:
    return f"{count} B" if count < 10_000_000 else f"{count / 1e6:.1f} MB"


def _part(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def percent_of(share: float | None) -> str:
    """A share as percent, or a dash."""
    return "–" if share is None else f"{share:.1%}"
