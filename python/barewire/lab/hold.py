# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Process 1 of a running lab: waits until the lab shall end. Started as a script, so that it stays small.

Usage: hold.py LIFELINE LABEL. The lifeline is a pipe whose other end the lab's creator holds. A byte on it makes the
lab outlive its creator; its end, for whatever reason the creator is gone, ends this process, and the kernel then kills
everything in the lab's process namespace and frees its network.
"""

import os
import signal
import sys


def main(lifeline: int) -> None:
    """Wait for the lifeline's end, or for ever once a byte came."""
    # Orphans of commands run in the lab become children of process 1: the kernel shall reap them.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    if os.read(lifeline, 1) == b"":
        return
    os.close(lifeline)
    while True:
        signal.pause()


if __name__ == "__main__":
    main(int(sys.argv[1]))
