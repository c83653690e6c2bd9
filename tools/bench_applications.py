# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Unmodified MPI programs from Debian over Barewire and over TCP, launched alternately; each result is checked.

    bench_applications.py [--hosts SITE,…] [--launches N] [--busy N] [APPLICATION …]

Prints a table, the slowest row first; docs/applications.md describes the programs and their checks. Exit code 0 if all
launches succeeded with right results, 1 if not, 2 for wrong use, 3 if none of the programs is installed.
"""

import argparse
import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

# Must precede imports from the package: it adds the package to the path.
from common import ROOT  # noqa: F401
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from barewire.applications import APPLICATIONS, SITES, Application, Campaign, Plan, Results, Skipped, find_programs
from barewire.applications.results import geometric_means, markdown, number, ratio_text
from barewire.errors import BarewireError, MachineCannot, WrongUse
from barewire.measure.environment import describe_machine


def main() -> int:
    """Measure and print."""
    options = _options()
    # Treat SIGTERM as an interrupt: end programs, print results so far, and clean up.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return _list(options) if options.list else _measure(options)
    except BarewireError as error:
        print(f"bench_applications: {error}", file=sys.stderr)
        return error.exit_code


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "applications", nargs="*", metavar="APPLICATION", help=f"some of {', '.join(APPLICATIONS)}; default: all"
    )
    parser.add_argument("--hosts", default="pair", help=f"some of {', '.join(SITES)}, or all (default: pair)")
    parser.add_argument(
        "--launches", type=int, default=7, help="launches of each program over each fabric, after one warm-up"
    )
    parser.add_argument("--seed", type=int, default=1, help="seed of the order of launches")
    parser.add_argument("--busy", type=int, default=0, help="busy processes on each core")
    parser.add_argument(
        "--limit", type=float, default=120.0, help="seconds until a launch counts as hung (default: 120)"
    )
    parser.add_argument("--list", action="store_true", help="list the programs, and whether they are installed")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    parser.add_argument("--output", type=Path, help="folder for results.json and table.md")
    return parser.parse_args()


def _measure(options: argparse.Namespace) -> int:
    applications = _chosen(options.applications, APPLICATIONS, "application")
    names = options.hosts.split(",") if options.hosts != "all" else list(SITES)
    sites = _chosen(names, SITES, "--hosts")
    installed, skipped = find_programs(applications)
    plan = Plan(tuple(installed), tuple(sites), options.launches, options.seed, options.busy, options.limit)
    for skip in skipped:
        print(f"SKIPPED {skip.application}: {skip.reason}", file=sys.stderr)
    if not installed:
        raise MachineCannot("none of these programs is installed: `setup/setup.sh applications` installs all")
    if options.output is not None:
        _make_folder(options.output)
    with tempfile.TemporaryDirectory(prefix="barewire-applications-") as folder:
        campaign = Campaign(plan, Path(folder), lambda line: print(line, file=sys.stderr, flush=True))
        try:
            campaign.run()
            stopped = False
        except KeyboardInterrupt:
            print("interrupted; results so far:", file=sys.stderr)
            stopped = True
        except BarewireError as error:
            if not campaign.launches:
                raise
            print(f"stopped: {error}; results so far:", file=sys.stderr)
            stopped = True
    results = Results(plan, describe_machine(), tuple(campaign.launches), tuple(skipped), _versions(installed))
    if options.output is not None:
        (options.output / "results.json").write_text(json.dumps(results.document(), indent=1) + "\n")
        (options.output / "table.md").write_text(markdown(results))
    if options.json:
        print(json.dumps(results.document()))
    else:
        _print(results)
    return int(stopped or bool(results.failures))


def _chosen(names: list[str], known: Mapping[str, Any], kind: str) -> list[Any]:
    unknown = [name for name in names if name not in known]
    if unknown:
        raise WrongUse(f"unknown {kind} '{unknown[0]}'; there are: {', '.join(known)}")
    return [known[name] for name in dict.fromkeys(names)] or list(known.values())


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise WrongUse(f"--output {folder} cannot be created: {error.strerror}") from error


def _versions(applications: Sequence[Application]) -> dict[str, str]:
    packages = sorted({package for application in applications for package in application.packages} | {"libopenmpi3"})
    command = ["dpkg-query", "-W", "-f", "${Package} ${Version}\n", *packages]
    try:
        completed = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return {}
    return dict(line.split(" ", 1) for line in completed.stdout.splitlines() if " " in line)


def _print(results: Results) -> None:
    console = Console(width=max(120, Console().width), highlight=False)
    table = Table()
    for heading in ("program", "figure", "hosts", "other fabric", "Barewire", "ratio of times", "verdict"):
        table.add_column(heading)
    for row in results.rows:
        ours, theirs = (f"{number(value)} {row.unit}" for value in row.medians)
        colour = "red" if row.ratio > 1.02 else "green" if row.ratio < 0.98 else "default"
        ratio = f"[{colour}]{escape(ratio_text(row))}[/]"
        table.add_row(row.application, row.figure, row.site, f"{theirs} ({row.rival})", ours, ratio, row.verdict)
    console.print(table)
    for site, mean in geometric_means(results.rows).items():
        programs = len({row.application for row in results.rows if row.site == site})
        console.print(f"{site}: geometric mean over {programs} programs {mean:.3f}")
    for launch in results.failures:
        round_name = "warm-up" if launch.round == 0 else f"launch {launch.round}"
        message = f"FAILED {launch.site} {launch.application} {launch.fabric} ({round_name}): {launch.error}"
        console.print(escape(message), style="red")
    if results.skipped:
        names = ", ".join(skip.application for skip in results.skipped)
        console.print(f"{len(results.skipped)} programs SKIPPED, because they are not installed: {names}")


def _list(options: argparse.Namespace) -> int:
    applications = _chosen(options.applications, APPLICATIONS, "application")
    _, skipped = find_programs(applications)
    missing = {skip.application: skip for skip in skipped}
    if options.json:
        print(json.dumps([_entry(application, missing.get(application.name)) for application in applications]))
        return 0
    table = Table()
    for heading in ("program", "what it is", "how it communicates", "installed"):
        table.add_column(heading, overflow="fold")
    for application in applications:
        state = missing[application.name].reason if application.name in missing else "yes"
        table.add_row(application.name, application.what, application.pattern, escape(state))
    Console(width=max(120, Console().width), highlight=False).print(table)
    return 0


def _entry(application: Application, missing: Skipped | None) -> dict[str, object]:
    return {
        "name": application.name,
        "what": application.what,
        "pattern": application.pattern,
        "packages": list(application.packages),
        "figures": [figure.name for figure in application.figures],
        "missing": None if missing is None else missing.reason,
    }


if __name__ == "__main__":
    sys.exit(main())
