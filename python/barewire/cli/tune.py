# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`barewire tune`: endpoint values that suit this machine, into the file that endpoints and the provider read."""

import json
import secrets
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from barewire.cli.progress import progress_bar
from barewire.errors import WrongUse
from barewire.lab import Lab, LinkSpec, parse_rate, parse_topology
from barewire.measure import LabSite, RemoteSite
from barewire.measure.tune import CANDIDATES, Trial, Tuned, TunePlan
from barewire.measure.tune import tune as measure_all
from barewire.results.tuning import tuning_path, write_tuning


def tune(
    lab: Annotated[str | None, typer.Option(help="two emulated hosts for this run alone [default: pair]")] = None,
    rate: Annotated[str, typer.Option(help="the lab's rate, such as 1gbit")] = "unshaped",
    mtu: Annotated[int, typer.Option(help="the lab's MTU in bytes")] = 1500,
    hosts: Annotated[
        str | None, typer.Option(help="two real hosts a,b with barewire-probe installed, instead of a lab")
    ] = None,
    interface: Annotated[str | None, typer.Option(help="of both real hosts")] = None,
    remote_shell: Annotated[str | None, typer.Option(help="to reach real hosts, instead of ssh")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="the values that matter most: one minute, not three")] = False,
    out: Annotated[Path | None, typer.Option(help="the file to write; this user's tuning file unless given")] = None,
    seed: Annotated[int | None, typer.Option(help="of the order; drawn unless given")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON document")] = False,
) -> None:
    """Find endpoint values for this machine and link by measuring each beside its default, interleaved.

    A value is changed only where it is better outside the interval of the measurement, worse in no test, and where a
    second run of all changes together agrees. Values that this does not measure stay in the file as they are.
    Nothing else should run meanwhile.
    """
    if hosts is None and interface is not None:
        raise WrongUse("--interface is of two real hosts: give --hosts a,b too; a lab has interfaces of its own")
    if hosts is not None and (lab is not None or rate != "unshaped" or mtu != 1500):
        raise WrongUse("--lab, --rate and --mtu are for emulated hosts: leave them out with --hosts")
    plan = TunePlan(seed=secrets.randbits(32) if seed is None else seed, quick=quick)
    place: AbstractContextManager[Any]
    if hosts is None:
        place = _in_lab(lab or "pair", LinkSpec(parse_rate(rate), mtu))
    else:
        place = nullcontext(RemoteSite.parse(hosts, interface, remote_shell))
    path = out or tuning_path()
    with place as site, progress_bar(quiet=as_json) as progress:
        found = measure_all(site, plan, progress)
    source = f"barewire tune, {datetime.now(UTC):%Y-%m-%d}, {hosts or 'lab'}, seed {plan.seed}"
    write_tuning(found.values, measured=plan.names, source=source, path=path)
    if as_json:
        typer.echo(json.dumps({"file": str(path), "seed": plan.seed, **_document(found)}, allow_nan=False))
    else:
        _print(Console(highlight=False), found, path)


@contextmanager
def _in_lab(topology: str, link: LinkSpec) -> Any:
    with Lab.up(parse_topology(topology), link) as lab:
        yield LabSite(lab)


def _document(found: Tuned) -> dict[str, Any]:
    def trial(one: Trial) -> dict[str, Any]:
        cells = [
            {"test": test, "bytes": size, "ratio": cell.ratio, "ci95": cell.ratio_ci95, "verdict": cell.verdict}
            for (test, size), cell in one.cells.items()
        ]
        return {"values": dict(one.values), "is_better": one.is_better, "cells": cells}

    return {
        "values": dict(found.values),
        "trials": [trial(one) for one in found.trials],
        "confirmation": None if found.confirmation is None else trial(found.confirmation),
    }


def _print(console: Console, found: Tuned, path: Path) -> None:
    table = Table(title="time of each candidate over that of the default: below 1 is better; * outside the interval")
    for heading in ("value", "default", "tried", *(f"{test} {size} B" for test, size in found.trials[0].cells), ""):
        table.add_column(heading, overflow="fold")
    for trial in found.trials:
        ((name, value),) = trial.values.items()
        default = CANDIDATES[name][0]
        table.add_row(name, str(default), str(value), *_ratios(trial), "better" if trial.is_better else "")
    if found.confirmation is not None:
        agreed = "agrees" if found.confirmation.is_better else "does not agree"
        table.add_row("all chosen", "", "again", *_ratios(found.confirmation), agreed)
    console.print(table)
    if found.values:
        changed = ", ".join(f"{name} {CANDIDATES[name][0]} → {value}" for name, value in found.values.items())
        console.print(f"changed: {changed}; endpoints that follow {path} take it from now on")
    elif found.chosen:
        console.print(f"nothing changed: measured once more, what looked better was not; {path} says so")
    else:
        console.print(f"nothing changed: no value is better than its default outside the interval; {path} says so")


def _ratios(trial: Trial) -> list[str]:
    marks = {"A faster": "*", "B faster": "*"}
    return [f"{cell.ratio:.3f}{marks.get(cell.verdict, '')}" for cell in trial.cells.values()]
