# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The floor's receiver, to which frames are sent one by one."""

import json
import subprocess
import sys
from pathlib import Path

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
begun = (2, 0), (3, 0)
whole = *begun, (2997, 0)
for message, pause in (*whole, (0, 0.5), (1, 0), (3, 0), (2997, 0), *begun, *whole, (3, 0), (2, 0)):
    time.sleep(pause)
    link.send(start + struct.pack("=III", 1400, message, 0) + bytes(1400))
link.send(start + struct.pack("=III", 0xFFFFFFFF, 0, 0) + bytes(46))
"""


def test_a_block_whose_start_or_end_was_lost_has_no_value_and_other_runs_are_ignored() -> None:
    """The second block's warm-up lacks its last message, with which the clock starts; the third one's end and the start
    of the fifth one are lost, too, and of the last one only the warm-up arrives."""
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
    *blocks, end = map(json.loads, lines.splitlines())
    assert [len(block["values"]) for block in blocks] == [1, 0, 0, 1, 0, 0] and blocks[0]["values"][0] < 0.4e9
    assert [block["lost"] for block in blocks] == [2993, 2993, 2994, 2993, 2994, 2995]
    assert end["complete"]


REFUSE = """
#include <errno.h>
#include <sys/socket.h>
ssize_t send(int s, const void *b, size_t n, int f) { errno = EAGAIN; return -1; }
ssize_t sendto(int s, const void *b, size_t n, int f, const struct sockaddr *a, socklen_t l) {
  errno = EAGAIN;
  return -1;
}
"""


@pytest.mark.parametrize(
    "floor", [pytest.param(FLOOR, id="packet"), pytest.param(FLOOR + "-xdp", id="xdp", marks=pytest.mark.matrix)]
)
def test_a_link_that_takes_no_frame_is_given_up(floor: str, tmp_path: Path) -> None:
    library = tmp_path / "refuse.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-xc", "-", "-o", library], input=REFUSE, text=True, check=True)
    with stand_up("pair") as lab:
        command = [
            "env",
            f"LD_PRELOAD={library}",
            floor,
            "-i",
            lab.hosts[0].interface,
            "-s",
            "64",
            "active",
            "pingpong",
        ]
        done = lab.run(lab.hosts[0].name, command, capture_output=True, text=True, timeout=20)
    assert done.returncode == 1 and "the link takes no frame" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(("-i", "nosuch0"), "nosuch0: No such device"), (("-i", "lo", "-p", "h2"), "h2: this is not a MAC address")],
)
def test_wrong_use_of_the_floor_has_exit_code_2(arguments: tuple[str, ...], said: str) -> None:
    done = subprocess.run([FLOOR, *arguments, "active", "pingpong"], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and said in done.stderr
