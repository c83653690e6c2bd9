# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Reads a capture and accounts for it: tshark's rows, frames, phases."""

from collections import defaultdict
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from barewire.account import envelope
from barewire.account.accounts import Accounts
from barewire.account.comment import comment_of
from barewire.account.frame import parse
from barewire.account.ledger import Ledger, Phase
from barewire.account.tshark import Dissection, Row
from barewire.errors import WrongUse

# wiretap's numbers.
_ETHERNET = "1"
_LINK_TYPES = {"7": "raw IP", "15": "BSD loopback", "25": "Linux cooked (SLL)", "210": "Linux cooked (SLL2)"}
_FRAMES_PER_REPORT = 20_000
# Of most networks with jumbo frames.
_MTU_MAX = 9216
# An address whose second digit is odd is a group's.
_ODD_DIGITS = tuple("13579bdf")
# A record's header in a pcap file.
_RECORD_BYTES = 16

Progress = Callable[[int], None]
"""Told how many bytes of the file were read, about."""


def account(capture: Path, message_bytes: int | None = None, progress: Progress = lambda _: None) -> Accounts:
    """Account for a capture. `message_bytes`: every message of the program has this size (`envelope.py`).

    WrongUse if it is no capture of Ethernet frames, MachineCannot without tshark.
    """
    dissection, comment = Dissection(capture), comment_of(capture)
    names = {address: name for name, addresses in comment.hosts.items() for address in addresses}
    ledger, watch = Ledger(comment.mtu or _MTU_MAX), _Watch()
    first_s = last_s = 0.0
    read_bytes = 0
    with closing(dissection.rows()) as rows:
        for number, row in enumerate(rows):
            _check_link_type(capture, row, number)
            watch.see(row)
            frame = parse(row, names)
            ledger.add(frame)
            first_s, last_s = frame.time_s if number == 0 else first_s, frame.time_s
            read_bytes += int(row.frame_cap_len) + _RECORD_BYTES
            if number % _FRAMES_PER_REPORT == 0:
                progress(read_bytes)
    if watch.frames == 0:
        cut = " (it is cut short in its first one)" if dissection.is_cut_short else ""
        raise WrongUse(f"{capture} has no frame{cut}")
    phases, found = ledger.counts(), None
    if message_bytes is not None:
        found = envelope.find(phases[Phase.DATA], message_bytes)
        phases = envelope.apply(phases, found)
    is_complete = not dissection.is_cut_short
    notes = tuple(watch.notes(is_complete, ledger.uncut))
    return Accounts(str(capture), phases, first_s, last_s, is_complete, found, notes)


def _check_link_type(capture: Path, row: Row, number: int) -> None:
    if row.encapsulation == _ETHERNET:
        return
    kind = _LINK_TYPES.get(row.encapsulation, f"link type {row.encapsulation} of wiretap")
    raise WrongUse(
        f"{capture}: frame {number + 1} is {kind}, not Ethernet: capture on one interface (tcpdump -i eth0, not -i any)"
    )


class _Watch:
    """Counts what makes accounts doubtful."""

    def __init__(self) -> None:
        self.frames = 0
        self._cut = 0
        self._encrypted = 0
        self._interfaces: defaultdict[tuple[str, str], set[str]] = defaultdict(set)

    def see(self, row: Row) -> None:
        self.frames += 1
        self._cut += row.frame_cap_len != row.frame_len
        self._encrypted += bool(row.barewire_encrypted)
        is_group = row.eth_dst[1:2] in _ODD_DIGITS
        if row.interface and not is_group:
            self._interfaces[row.eth_src, row.eth_dst].add(row.interface)

    def notes(self, is_complete: bool, uncut: int) -> list[str]:
        notes = []
        if not is_complete:
            notes.append("the capture is cut short: these are the accounts of what it has")
        if self._cut:
            notes.append(
                f"{self._cut} frames were captured in part (snap length): their lengths count, "
                "what headers lie beyond counts as payload or other"
            )
        if uncut:
            notes.append(
                f"{uncut} frames are longer than the link's: segmentation offload cuts or joins them, so there were "
                "more frames and headers on the wire (ethtool -K eth0 tso off gso off gro off; or at the switch)"
            )
        if self._encrypted:
            notes.append(f"{self._encrypted} frames are encrypted: message headers in them count as payload")
        twice = sorted({source for (source, _), interfaces in self._interfaces.items() if len(interfaces) > 1})
        if twice:
            notes.append(
                f"frames of {', '.join(twice)} were captured at several interfaces, and may be counted more than once: "
                "merge captures of one direction only (tcpdump -Q in)"
            )
        return notes
