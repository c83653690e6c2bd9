# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The tuning file: its location and content."""

import tomllib
from pathlib import Path

import pytest

from barewire.errors import MachineCannot, WrongUse
from barewire.results.host import Crossover
from barewire.results.tuning import tuning_path, write_crossover, write_tuning


def test_the_named_file_overrides_the_users() -> None:
    """The Rust implementation uses the same order."""
    assert tuning_path({"BAREWIRE_TUNING": "/x/y.toml", "HOME": "/home/a"}) == Path("/x/y.toml")
    assert tuning_path({"XDG_CONFIG_HOME": "/c", "HOME": "/home/a"}) == Path("/c/barewire/tuning.toml")
    assert tuning_path({"HOME": "/home/a"}) == Path("/home/a/.config/barewire/tuning.toml")


def test_the_crossover_of_the_message_in_the_cache_is_written(tmp_path: Path) -> None:
    """It replaces the value of an earlier run."""
    path = tmp_path / "new" / "tuning.toml"
    for size in (4096.4, 8462.4):
        cold = Crossover("copy crossover, message not in the cache", "a", "b", 57000.0, None, 16, 61440, 6)
        warm = Crossover("copy crossover", "copied", "gathered", size, None, 16, 61440, 6)
        assert write_crossover([cold, warm], source="a-run", path=path) == path
        assert tomllib.loads(path.read_text()) == {"copy_crossover_bytes": round(size)}
        assert "a-run" in path.read_text()


def test_a_run_without_a_crossover_writes_nothing(tmp_path: Path) -> None:
    """There is no crossover without a lab."""
    with pytest.raises(MachineCannot, match="barewire doctor"):
        write_crossover([], source="a-run", path=tmp_path / "tuning.toml")
    assert not (tmp_path / "tuning.toml").exists()


def test_measured_values_are_replaced_and_the_rest_stays(tmp_path: Path) -> None:
    """A value returns to its default if a new run found that as good."""
    path = tmp_path / "tuning.toml"
    path.write_text("# by hand\ncopy_crossover_bytes = 4000  # a run\nwindow = 32\nring_bytes = 1048576\n")
    write_tuning({"ring_bytes": 4194304}, measured=("window", "ring_bytes"), source="a tune", path=path)
    assert tomllib.loads(path.read_text()) == {"copy_crossover_bytes": 4000, "ring_bytes": 4194304}
    assert "4000  # a run" in path.read_text() and "4194304  # a tune" in path.read_text()


def test_an_invalid_file_is_not_changed(tmp_path: Path) -> None:
    path = tmp_path / "tuning.toml"
    path.write_text("nonsense")
    with pytest.raises(WrongUse, match="not a tuning file"):
        write_tuning({"window": 32}, measured=("window",), source="a tune", path=path)
    assert path.read_text() == "nonsense"
