# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A trained classifier in the controller of real Open vSwitch: recognised, recorded, refused."""

import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from conftest import barewire, eventually, stand_up

from barewire.lab import Lab, LinkSpec
from barewire.sdn.api.client import Announced
from barewire.sdn.bench.controlled import controlled
from barewire.sdn.classify.features import FEATURES
from barewire.sdn.classify.learn import read_recordings
from barewire.sdn.classify.model import Model
from barewire.sdn.simulate.reference import non_blocking
from barewire.topology import parse

pytestmark = pytest.mark.usefixtures("lab_allowed", "nothing_left")
RATE = 25_000_000
SERVE = """
import socket
listener = socket.create_server(("", 41001))
print("ready", flush=True)
while True:
    connection, _ = listener.accept()
    while connection.recv(1 << 16):
        connection.sendall(b"x")
"""
ASK = """
import socket, sys, time
connection = socket.create_connection((sys.argv[1], 41001))
while True:
    connection.sendall(bytes(20000))
    connection.recv(100)
    time.sleep(0.02)
"""


def more_up_than_down(classes: tuple[str, str]) -> Model:
    """`classes[1]` if clients send more than they get."""
    nodes = np.array([0, 1, 2], dtype=np.intp)
    leaf = np.array([[0, 0], [0.98, 0.02], [0.02, 0.98]], dtype=np.float32)
    feature = np.array([FEATURES.index("balance"), 0, 0], dtype=np.intp)
    left, right = np.array([1, 1, 2], dtype=np.intp), np.array([2, 1, 2], dtype=np.intp)
    return Model(classes, 0.9, 1.0, nodes[:1], feature, np.zeros(3, dtype=np.float32), left, right, leaf)


def talking(lab: Lab) -> list["subprocess.Popen[str]"]:
    """h1 serves, h2 sends."""
    server = lab.popen("h1", [sys.executable, "-I", "-S", "-c", SERVE], stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None and server.stdout.readline() == "ready\n"
    return [server, lab.popen("h2", [sys.executable, "-I", "-S", "-c", ASK, lab.host("h1").address], text=True)]


def test_unannounced_flows_are_recognised_moved_to_their_profile_and_recorded_once_announced(tmp_path: Path) -> None:
    model, recording = tmp_path / "model.json", tmp_path / "run.csv.gz"
    more_up_than_down(("default", "hadoop")).write(model)
    options = ["--classifier", str(model), "--record", str(recording), "--statistics", "0.25"]
    network = non_blocking(parse("fat-tree:4"), ["h1", "h2", "h3"])
    with (
        stand_up(network, LinkSpec(rate_bit_s=RATE)) as lab,
        controlled(lab, ["default=ecmp"], RATE, options) as controller,
    ):
        processes = talking(lab)
        try:

            def known() -> set[tuple[str, str]]:
                flows = controller.client.get("flows")["flows"]
                return {(one["profile"], one["known_by"]) for one in flows if one["protocol"] == "tcp"}

            assert eventually(lambda: known() == {("hadoop", "learnt")}, 8), known()
            job = {"name": "sender", "profile": "mpi", "hosts": ["h1", "h2"]}
            with Announced(controller.client, job, print):
                assert known() == {("mpi", "announced")}
                time.sleep(1.5)
        finally:
            for process in processes:
                process.kill()
                process.communicate()
    frame = read_recordings([recording]).frame
    assert set(frame["application"]) == {"sender"} and set(frame["profile"]) == {"mpi"} and len(frame) >= 1


def test_a_controller_does_not_start_with_a_classifier_that_was_changed(tmp_path: Path) -> None:
    file = tmp_path / "model.json"
    more_up_than_down(("default", "hadoop")).write(file)
    file.write_text(file.read_text().replace("0.98", "0.99", 1))
    started = barewire("sdn", "start", "--classifier", str(file), "--token", str(tmp_path / "token"))
    assert started.returncode == 2 and "changed since it was trained" in started.stderr
    assert not (tmp_path / "token").exists()
