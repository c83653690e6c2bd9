# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Command-line options of a lab's links."""

from enum import StrEnum
from typing import Annotated

import typer

from barewire.cli.options import LAB, is_whole
from barewire.errors import WrongUse
from barewire.lab import LinkSpec, parse_delay, parse_loss, parse_rate

ONE_MTU = "each MTU needs links of its own, which only a lab of this run has"


class OnOff(StrEnum):
    """An option with the values on and off."""

    on = "on"
    off = "off"


class CoreOf(StrEnum):
    """The side whose core is used."""

    sender = "sender"
    receiver = "receiver"


Rate = Annotated[
    str, typer.Option(metavar="RATE", help="each link's rate, such as 1gbit; or unshaped", rich_help_panel=LAB)
]
Mtu = Annotated[int, typer.Option(metavar="BYTES", help="each link's MTU in bytes, 68 to 65535", rich_help_panel=LAB)]
Mtus = Annotated[
    str,
    typer.Option(
        metavar="BYTES,BYTES",
        help="each link's MTU in bytes, or several: 1500,9000, each measured",
        rich_help_panel=LAB,
    ),
]
Offloads = Annotated[
    OnOff, typer.Option(help="segmentation, checksum and receive offloads of the links", rich_help_panel=LAB)
]
Loss = Annotated[
    str,
    typer.Option(metavar="SHARE", help="share of each host's frames that are lost, such as 0.1%", rich_help_panel=LAB),
]
ReceiveOn = Annotated[
    CoreOf,
    typer.Option(
        help="side whose core runs the kernel's receive processing; receiver, as on real hosts, needs root",
        rich_help_panel=LAB,
    ),
]
Delay = Annotated[
    str,
    typer.Option(
        metavar="TIME", help="time that a frame travels on each link, such as 50us; needs --rate", rich_help_panel=LAB
    ),
]
Jitter = Annotated[
    str,
    typer.Option(
        metavar="TIME", help="by how much the delay varies at most; frames keep their order", rich_help_panel=LAB
    ),
]


def read(
    rate: str, mtu: int, offloads: OnOff, loss: str, receive_on: CoreOf, delay: str = "0", jitter: str = "0"
) -> LinkSpec:
    """Parse these options; WrongUse for invalid values."""
    return LinkSpec(
        parse_rate(rate),
        mtu,
        offloads is OnOff.on,
        parse_loss(loss),
        receive_on.value,
        parse_delay(delay),
        parse_delay(jitter),
    )


def real(link: LinkSpec) -> LinkSpec:
    """Return the link of real hosts, whose rate and MTU are given for the physical limit; the rest applies to a lab."""
    if link != LinkSpec(link.rate_bit_s, link.mtu):
        raise WrongUse("--loss, --offloads and --receive-on apply to a lab: omit them for real hosts")
    return link


def parse_mtus(text: str) -> tuple[int, ...]:
    """Parse `1500`, or `1500,9000`; WrongUse if these are no numbers. `read` checks that links can have them."""
    parts = [part.strip() for part in text.split(",")]
    if not all(map(is_whole, parts)):
        raise WrongUse(f"--mtu takes numbers of bytes with commas, such as 1500,9000, not '{text}'")
    return tuple(dict.fromkeys(map(int, parts)))
