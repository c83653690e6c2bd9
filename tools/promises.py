# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Promises as ratios of launches, and the command line of the tools that measure them."""

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
# The tools run without an installed package.
sys.path.insert(0, str(ROOT / "python"))

BAREWIRE = str(ROOT / "bin" / "barewire")


def exit_code(main: Callable[[], int]) -> int:
    """Run a tool; return its exit code. An error that a user can mend is a message."""
    from barewire.errors import BarewireError

    try:
        return main()
    except BarewireError as error:
        print(f"{Path(sys.argv[0]).stem}: {error}", file=sys.stderr)
        return error.exit_code


@dataclass(frozen=True)
class Promise:
    """A ratio and its bound; `interval` is that of the ratio over launches."""

    what: str
    ratio: float
    interval: tuple[float, float]
    sign: str
    bound: float

    @property
    def is_kept(self) -> bool:
        """Whether the ratio satisfies its bound."""
        return self.ratio <= self.bound if self.sign == "≤" else self.ratio >= self.bound


def ratio(first: list[float], second: list[float]) -> tuple[float, tuple[float, float]]:
    """Return the ratio of the medians, and its 95 % percentile-bootstrap interval over launches."""
    generator = np.random.default_rng(1)
    draws = [
        np.median(generator.choice(first, len(first))) / np.median(generator.choice(second, len(second)))
        for _ in range(4000)
    ]
    low, high = np.quantile(draws, [0.025, 0.975])
    return median(first) / median(second), (float(low), float(high))


def command_line(about: str | None, groups: Mapping[str, Any]) -> argparse.ArgumentParser:
    """Return a parser with the common options."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("groups", nargs="*", choices=[*groups, []], help="groups of promises (default: all)")
    parser.add_argument("--launches", type=int, default=7, help="launches of each subject (default: 7)")
    parser.add_argument("--preferred", action="store_true", help="run programs at nice -19, on a busy machine")
    return parser


def judge(
    chosen: list[str], groups: Mapping[str, Callable[[Any], Iterator[Promise]]], bench_in: Callable[[Path], Any]
) -> int:
    """Measure and print; return 1 if any promise is missed. Programs are built in a temporary folder."""
    missed = 0
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        bench = bench_in(Path(folder))
        for group in chosen or groups:
            print(f"{group}:", flush=True)
            for promise in groups[group](bench):
                missed += not promise.is_kept
                low, high = promise.interval
                status = "kept  " if promise.is_kept else "MISSED"
                text = f"{promise.ratio:7.3f} [{low:.3f}, {high:.3f}] {promise.sign} {promise.bound}"
                print(f"{status}  {promise.what:80} {text}", flush=True)
    print(f"{missed} missed" if missed else "all kept")
    return int(missed > 0)
