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
# The tools run without the package being installed.
sys.path.insert(0, str(ROOT / "python"))

BAREWIRE = str(ROOT / "bin" / "barewire")


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
        """Whether the ratio keeps its bound."""
        return self.ratio <= self.bound if self.sign == "≤" else self.ratio >= self.bound


def ratio(one: list[float], other: list[float]) -> tuple[float, tuple[float, float]]:
    """Ratio of the medians, and its percentile-bootstrap interval of 95 % over launches."""
    generator = np.random.default_rng(1)
    draws = [
        np.median(generator.choice(one, len(one))) / np.median(generator.choice(other, len(other))) for _ in range(4000)
    ]
    low, high = np.quantile(draws, [0.025, 0.975])
    return median(one) / median(other), (float(low), float(high))


def command_line(about: str | None, groups: Mapping[str, Any]) -> argparse.ArgumentParser:
    """The options that all have."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("groups", nargs="*", choices=[*groups, []], help="which promises (default: all)")
    parser.add_argument("--launches", type=int, default=7, help="of each subject (default: 7)")
    parser.add_argument("--preferred", action="store_true", help="programs at nice -19, where others use the machine")
    return parser


def judge(
    chosen: list[str], groups: Mapping[str, Callable[[Any], Iterator[Promise]]], bench_in: Callable[[Path], Any]
) -> int:
    """Measure and print; 1 if a promise is missed. What is built lies in a folder for this call."""
    missed = 0
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        bench = bench_in(Path(folder))
        for group in chosen or groups:
            print(f"{group}:", flush=True)
            for promise in groups[group](bench):
                missed += not promise.is_kept
                low, high = promise.interval
                kept = "kept  " if promise.is_kept else "MISSED"
                text = f"{promise.ratio:7.3f} [{low:.3f}, {high:.3f}] {promise.sign} {promise.bound}"
                print(f"{kept}  {promise.what:80} {text}", flush=True)
    print(f"{missed} missed" if missed else "all kept")
    return int(missed > 0)
