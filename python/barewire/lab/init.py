# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Process 1 of a lab: waits for the lab's end. A standalone script, to keep it small.

Usage: init.py REPORT LIFELINE LABEL. It sends one packet on the socket REPORT, whose credentials tell the lab's creator
its number. The lifeline is a pipe whose other end the creator holds. A byte on it makes the lab outlive its creator.
Its end of file, whatever ended the creator, ends this process; the kernel then kills everything in the lab's process
namespace and frees its network.
"""

import os
import signal
import sys


def main(report: int, lifeline: int) -> None:
    """Wait for the lifeline's end, or forever after a byte."""
    # Orphans of the lab's creation and of commands in the lab become children of process 1; the kernel reaps them.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    os.write(report, b"{}")
    os.close(report)
    if os.read(lifeline, 1) == b"":
        return
    os.close(lifeline)
    while True:
        signal.pause()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
