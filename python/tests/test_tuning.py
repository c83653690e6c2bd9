# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The tuning file: where it is, and what is written into it."""

import tomllib
from pathlib import Path

import pytest

from barewire.errors import MachineCannot, WrongUse
from barewire.results.host import Crossover
from barewire.results.tuning import tuning_path, write_crossover, write_tuning


def test_the_named_file_goes_before_the_users() -> None:
    """As the Rust side looks for it."""
    assert tuning_path({"BAREWIRE_TUNING": "/x/y.toml", "HOME": "/home/a"}) == Path("/x/y.toml")
    assert tuning_path({"XDG_CONFIG_HOME": "/c", "HOME": "/home/a"}) == Path("/c/barewire/tuning.toml")
    assert tuning_path({"HOME": "/home/a"}) == Path("/home/a/.config/barewire/tuning.toml")


def test_the_crossover_of_the_message_in_the_cache_is_written(tmp_path: Path) -> None:
    """And replaces what an earlier run wrote."""
    path = tmp_path / "new" / "tuning.toml"
    for size in (4096.4, 8462.4):
        cold = Crossover("copy crossover, message not in the cache", "a", "b", 57000.0, None, 16, 61440, 6)
        warm = Crossover("copy crossover", "copied", "gathered", size, None, 16, 61440, 6)
        assert write_crossover([cold, warm], source="a-run", path=path) == path
        assert tomllib.loads(path.read_text()) == {"copy_crossover_bytes": round(size)}
        assert "a-run" in path.read_text()


def test_a_run_without_a_crossover_writes_nothing(tmp_path: Path) -> None:
    """Where no lab could be made."""
    with pytest.raises(MachineCannot, match="barewire doctor"):
        write_crossover([], source="a-run", path=tmp_path / "tuning.toml")
    assert not (tmp_path / "tuning.toml").exists()


def test_what_was_measured_is_replaced_and_the_rest_stays(tmp_path: Path) -> None:
    """Also back to the default, where a new run found that as good."""
    path = tmp_path / "tuning.toml"
    path.write_text("# by hand\ncopy_crossover_bytes = 4000  # a run\nwindow = 32\nring_bytes = 1048576\n")
    write_tuning({"ring_bytes": 4194304}, measured=("window", "ring_bytes"), source="a tune", path=path)
    assert tomllib.loads(path.read_text()) == {"copy_crossover_bytes": 4000, "ring_bytes": 4194304}
    assert "4000  # a run" in path.read_text() and "4194304  # a tune" in path.read_text()


def test_a_file_that_is_none_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "tuning.toml"
    path.write_text("nonsense")
    with pytest.raises(WrongUse, match="no tuning file"):
        write_tuning({"window": 32}, measured=("window",), source="a tune", path=path)
    assert path.read_text() == "nonsense"
