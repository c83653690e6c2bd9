# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What qemu boots here: Debian's own kernel, the modules that a lab needs, and busybox."""

from barewire.guests import image
from barewire.guests.image import Image
from barewire.guests.machines import INIT

MODULES = ("virtio_pci", "9pnet_virtio", "9p", "af_packet", "veth", "bridge")
MODULES += ("sch_tbf", "sch_netem", "sch_ingress", "cls_bpf")


def build() -> Image:
    """Return the image, made now if it is not in the cache; CannotBuild says what is missing."""
    return image.build(INIT, MODULES)
