# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`barewire tune` in a lab, and that what it writes is what endpoints and the provider take."""

import json
import os
import tomllib
from pathlib import Path

import pytest
from conftest import barewire, stand_up
from mpi_libraries import needs, program

from barewire.measure.launch import Effort
from barewire.measure.programs import read_tuning
from barewire.measure.sites import LabSite
from barewire.measure.tune import EAGER, FRAMES, PIPE, TunePlan, tune
from barewire.measure.tune_eager import SIZES


@pytest.mark.matrix
@pytest.mark.usefixtures("lab_allowed", "nothing_left")
def test_a_quick_run_measures_all_candidates_and_writes_a_file_that_endpoints_take(tmp_path: Path) -> None:
    """Whatever it finds: what is in the file was better twice, and what it did not measure stays."""
    file = tmp_path / "tuning.toml"
    file.write_text("copy_crossover_bytes = 4000\nwindow = 40\nacknowledge_every = 1\n")
    done = barewire("tune", "--quick", "--output", str(file), "--seed", "1", "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    (found,) = document["findings"]
    # With a window of 40, which stays, an acknowledgement covers 20 frames at most.
    assert {one["values"]["acknowledge_every"] for one in found["trials"] if "acknowledge_every" in one["values"]} == {
        8
    }
    assert len(found["trials"]) == 1 + len(FRAMES.candidates["ring_bytes"]) - 1
    assert all(len(trial["cells"]) == 4 for trial in found["trials"])
    kept = {"copy_crossover_bytes": 4000, "window": 40}
    assert tomllib.loads(file.read_text()) == kept | document["values"], "1 is measured anew, and never chosen"
    if document["values"]:
        assert found["confirmation"]["is_better"]
    taken = barewire(
        *("bench", "pingpong", "--transport", "endpoint", "--sizes", "64", "--launches", "1", "--samples", "50"),
        *("-o", str(tmp_path / "run")),
        env=dict(os.environ) | {"BAREWIRE_TUNING": str(file)},
    )
    assert taken.returncode == 0, taken.stderr


@pytest.mark.matrix
@pytest.mark.usefixtures("nothing_left")
def test_all_groups_are_measured_where_their_messages_go(tmp_path: Path) -> None:
    """Two launches of each, very short: the pipe's in one host, the eager limit's between two, with its crossovers."""
    plan = TunePlan(1, *read_tuning(tmp_path / "none"), launches=2, effort=Effort(20, 0.001, 5, 3))
    with stand_up("pair") as lab:
        found = tune(LabSite(lab), plan)
    frames, pipe, eager = found.findings
    assert (frames.group, pipe.group, eager.group) == (FRAMES.name, PIPE.name, EAGER)
    assert len(pipe.trials) == sum(len(values) - 1 for values in PIPE.candidates.values())
    assert {cell for trial in pipe.trials for cell in trial.cells} == {
        (test, size) for test, sizes in PIPE.cells for size in sizes
    }
    assert [crossing.test for crossing in eager.crossings] == ["pingpong", "stream"]
    assert all(SIZES[0] <= crossing.bytes <= SIZES[-1] for crossing in eager.crossings)


@pytest.mark.usefixtures("lab_allowed", "nothing_left")
def test_the_provider_takes_the_file_and_the_environment_goes_before_it(tmp_path: Path) -> None:
    """A file with a window that cannot be is refused by its name, unless the environment names another value."""
    needs("barewire")
    built = program("mpich-5", "messages")
    file = tmp_path / "tuning.toml"
    file.write_text("window = 20\nacknowledge_every = 10\nslots = 32\neager_bytes = 100\n")
    named = dict(os.environ) | {"BAREWIRE_TUNING": str(file), "FI_LOG_LEVEL": "warn"}
    command = ("run", "-n", "2", "--lab", "pair", "--", built, "7")
    done = barewire(*command, env=named)
    assert done.returncode == 0, done.stderr[-2000:]
    wrong = barewire(*command, env=named | {"FI_BAREWIRE_ACKNOWLEDGE_EVERY": "32"})
    assert wrong.returncode != 0
    assert "acknowledge_every must be 1 to 31" in wrong.stdout + wrong.stderr
    done = barewire(*command, env=named | {"FI_BAREWIRE_ACKNOWLEDGE_EVERY": "11", "FI_BAREWIRE_WINDOW": "22"})
    assert done.returncode == 0, done.stderr[-2000:]


def test_what_does_not_go_together_is_refused_with_what_to_do() -> None:
    for arguments, said in (
        (("--interface", "eth1"), "--hosts"),
        (("--hosts", "a,b", "--mtu", "9000"), "emulated"),
        (("--hosts", "a"), "two hosts"),
    ):
        done = barewire("tune", *arguments)
        assert done.returncode == 2 and said in done.stderr, done.stderr
