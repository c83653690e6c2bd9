# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`barewire tune`: finds endpoint values for this machine, and writes them to the tuning file."""

import secrets
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from barewire.cli import links, options
from barewire.cli.labs import LabChoice, choose_lab
from barewire.cli.output import print_document
from barewire.cli.progress import progress_bar
from barewire.errors import WrongUse
from barewire.lab import LinkSpec, parse_rate
from barewire.measure.programs import read_tuning
from barewire.measure.sites import LabSite, RemoteSite
from barewire.measure.tune import Findings, Tuned, TunePlan
from barewire.measure.tune import tune as measure_all
from barewire.measure.tune_trials import Trial
from barewire.report.words import message_size
from barewire.results.tuning import check_target, tuning_path, write_tuning
from barewire.stats.confidence import interval_name, launches_for_interval


def tune(
    lab: Annotated[str | None, options.LAB_CHOICE] = None,
    rate: links.Rate = "unshaped",
    mtu: links.Mtu = 1500,
    hosts: options.TwoHosts = None,
    interface: options.InterfaceOfHosts = None,
    remote_shell: options.RemoteShell = None,
    quick: options.Quick = False,
    confidence: options.Confidence = 95,
    output: Annotated[Path | None, options.TUNING_FILE] = None,
    seed: options.Seed = None,
    as_json: options.AsJson = False,
) -> None:
    """Find values for this machine and link by comparing each with its default, interleaved.

    For endpoints over frames: window, acknowledgements, rings, slots, descriptors. For messages: the eager limit, and
    the ring to a process of the same host. A value is changed only if it is better outside the measurement's interval,
    worse in no test, and a second run of the changes agrees. Values that are not measured stay as they are in the file.
    Nothing else should run meanwhile: six minutes, or one with --quick, for the two values that matter most.
    """
    if hosts is None:
        options.check_in_a_lab(interface, remote_shell)
    if hosts is not None and (lab is not None or rate != "unshaped" or mtu != 1500):
        raise WrongUse("--lab, --rate and --mtu apply to emulated hosts: omit them with --hosts")
    path = output or tuning_path()
    check_target(path)
    defaults, kept = read_tuning(path)
    share = options.read_confidence(confidence)
    chosen_seed = secrets.randbits(32) if seed is None else seed
    plan = TunePlan(chosen_seed, defaults, kept, quick, share, launches_for_interval(share) + 2)
    site_context: AbstractContextManager[Any]
    if hosts is None:
        site_context = _in_lab(choose_lab(lab or "pair", LinkSpec(parse_rate(rate), mtu)))
    else:
        site_context = nullcontext(RemoteSite.parse(hosts, interface, remote_shell))
    with site_context as site, progress_bar() as progress:
        tuned = measure_all(site, plan, progress)
    console = Console(highlight=False)
    source = f"barewire tune, {datetime.now(UTC):%Y-%m-%d}, {hosts or 'lab'}, seed {plan.seed}"
    try:
        write_tuning(tuned.values, measured=plan.names, source=source, path=path)
    finally:
        # Also if the file is not writable any more.
        if as_json:
            print_document("tune", {"file": str(path), "seed": plan.seed, **_document(tuned, share)})
        else:
            _print(console, tuned)
    if not as_json:
        then = f"endpoints that read {path} now use it" if tuned.values else f"{path} records that"
        console.print(then, markup=False, soft_wrap=True)


@contextmanager
def _in_lab(choice: LabChoice) -> Any:
    with choice.entered() as lab:
        yield LabSite(lab)


def _document(tuned: Tuned, confidence: float) -> dict[str, Any]:
    interval = interval_name(confidence)

    def trial(candidate: Trial) -> dict[str, Any]:
        cells = [
            {"test": test, "bytes": size, "ratio": cell.ratio, interval: cell.ratio_interval, "verdict": cell.verdict}
            for (test, size), cell in candidate.cells.items()
        ]
        return {"values": dict(candidate.values), "is_better": candidate.is_better, "cells": cells}

    def finding(group: Findings) -> dict[str, Any]:
        return {
            "group": group.group,
            "values": dict(group.values),
            "trials": [trial(candidate) for candidate in group.trials],
            "confirmation": None if group.confirmation is None else trial(group.confirmation),
            "crossovers": [asdict(crossing) for crossing in group.crossings],
        }

    return {
        "confidence": confidence,
        "values": dict(tuned.values),
        "defaults": dict(tuned.defaults),
        "findings": [finding(group) for group in tuned.findings],
    }


def _print(console: Console, tuned: Tuned) -> None:
    for group in tuned.findings:
        for crossing in group.crossings:
            interval = "" if crossing.interval is None else f" [{crossing.interval[0]:.0f}, {crossing.interval[1]:.0f}]"
            console.print(f"{crossing.test}: eager is faster up to {crossing.bytes:.0f} B{escape(interval)}")
        if group.trials:
            console.print(_table(group, tuned))
    if tuned.values:
        changed = ", ".join(f"{name} {tuned.defaults[name]} → {value}" for name, value in tuned.values.items())
        console.print(f"changed: {changed}")
    elif any(group.chosen for group in tuned.findings):
        console.print("nothing changed: a second run did not confirm the better values")
    else:
        console.print("nothing changed: no value is better than its default outside the interval")


def _table(group: Findings, tuned: Tuned) -> Table:
    title = f"{group.group}: time of each candidate over that of the default: below 1 is better; * outside the interval"
    table = Table(title=title)
    headings = (f"{test} {message_size(size)}" for test, size in group.trials[0].cells)
    for heading in ("value", "default", "tried", *headings, ""):
        table.add_column(heading, overflow="fold")
    for trial in group.trials:
        ((name, value),) = trial.values.items()
        table.add_row(name, str(tuned.defaults[name]), str(value), *_ratios(trial), "better" if trial.is_better else "")
    if group.confirmation is not None:
        agreed = "agrees" if group.confirmation.is_better else "does not agree"
        table.add_row("all chosen", "", "again", *_ratios(group.confirmation), agreed)
    return table


def _ratios(trial: Trial) -> list[str]:
    marks = {"A faster": "*", "B faster": "*"}
    return [f"{cell.ratio:.3f}{marks.get(cell.verdict, '')}" for cell in trial.cells.values()]
