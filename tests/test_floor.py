# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The floor's receiver, to which frames are sent one by one."""

import json
import subprocess
import sys

import pytest
from conftest import ROOT, stand_up

pytestmark = pytest.mark.usefixtures("nothing_left")

FLOOR = str(ROOT / "target" / "release" / "barewire-floor")
# Messages of 1400 bytes, of which a block has 2995 after a warm-up of 3. Frames are (message, pause before).
SENDER = """
import socket, struct, sys, time
link = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
link.bind((sys.argv[1], 0))
start = bytes.fromhex(sys.argv[2].replace(":", "")) + link.getsockname()[4] + struct.pack(">H", 0x88B6)
# The end of another run.
link.send(start + struct.pack("=IIHH", 0xFFFFFFFF, 0, 0, 7) + bytes(46))
for message, pause in ((2, 0), (3, 0), (2997, 0), (0, 0.5), (1, 0), (3, 0), (2997, 0)):
    time.sleep(pause)
    link.send(start + struct.pack("=III", 1400, message, 0) + bytes(1400))
link.send(start + struct.pack("=III", 0xFFFFFFFF, 0, 0) + bytes(46))
"""


def test_a_block_whose_start_was_lost_has_no_value_and_other_runs_are_ignored() -> None:
    """The second block's warm-up lacks its last message, with which the clock starts."""
    with stand_up("pair") as lab:
        sender, receiver = lab.hosts[:2]
        command = [FLOOR, "-i", receiver.interface, "-s", "1400", "-w", "3", "passive", "stream"]
        with lab.popen(receiver.name, command, stdout=subprocess.PIPE, text=True) as floor:
            assert floor.stdout is not None
            while "ready" not in floor.stdout.readline():
                pass
            arguments = [sys.executable, "-c", SENDER, sender.interface, receiver.mac]
            with lab.popen(sender.name, arguments) as sending:
                assert sending.wait(10) == 0
            lines, _ = floor.communicate(timeout=10)
    first, second, end = map(json.loads, lines.splitlines())
    assert len(first["values"]) == 1 and first["values"][0] < 0.4e9 and first["lost"] == 2993
    assert second["values"] == [] and second["lost"] == 2993
    assert end["complete"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(("-i", "nosuch0"), "nosuch0: No such device"), (("-i", "lo", "-p", "h2"), "h2: this is not a MAC address")],
)
def test_wrong_use_of_the_floor_has_exit_code_2(arguments: tuple[str, ...], said: str) -> None:
    done = subprocess.run([FLOOR, *arguments, "active", "pingpong"], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and said in done.stderr
