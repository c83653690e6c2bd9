# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What the tests against a Linux kernel share; without the means for a guest they skip, and say which are missing."""

from collections.abc import Callable, Iterator

import pytest
from conftest import stand_up

from barewire.guests.debian import CannotBuild
from barewire.lab import Lab
from kernel_llc.guest import Guest, GuestFailed, Order
from kernel_llc.image import Image, build

Boot = Callable[..., Guest]


@pytest.fixture(scope="module")
def image() -> Image:
    try:
        Guest.check()
        return build()
    except (CannotBuild, GuestFailed) as reason:
        pytest.skip(f"no guest to test against: {reason}")


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with stand_up("pair") as lab:
        yield lab


@pytest.fixture(scope="module")
def boot(image: Image, lab: Lab) -> Boot:
    """Boots a guest on the lab, with orders from the start."""

    def boot(*orders: Order) -> Guest:
        return Guest(image, lab, *orders)

    return boot
