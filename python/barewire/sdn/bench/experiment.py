# SPDX-License-Identifier: Apache-2.0 OR MIT
"""An experiment from its first launch to its record."""

import os
import subprocess
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from barewire import installed
from barewire.errors import MachineCannot, MeasurementFailed
from barewire.lab import openvswitch
from barewire.measure.environment import describe_machine
from barewire.measure.session import Progress, new_run, run_campaign
from barewire.mpi import FabricOptions, Family, Library, find_library, installed_libraries, suite
from barewire.mpi.fabrics import PROVIDER, fabric_settings, provider_folder
from barewire.results.run import Run
from barewire.sdn.bench.campaign import BenchCampaign
from barewire.sdn.bench.plan import REPLAY, RING, BenchPlan
from barewire.sdn.frameworks.cluster import require

KIND = "sdn"


def prepared(plan: BenchPlan, library: str | None) -> BenchCampaign:
    """Find and build what the plan needs. MachineCannot says what is missing and how to get it."""
    openvswitch.require()
    if plan.experiment != RING and plan.shuffler != REPLAY:
        require(plan.shuffler)
    if plan.fabric == PROVIDER:
        provider_folder(os.environ, installed.PROVIDER)
    chosen = _library() if library is None else find_library(library)
    chosen.program("mpirun")
    fabric_settings(chosen, FabricOptions(plan.fabric), one_host=False, lab=True)
    return BenchCampaign(plan, chosen, suite.build(chosen, ["beff"])["beff"])


def measure(campaign: BenchCampaign, directory: Path, *, command: Sequence[str], progress: Progress) -> Run:
    """Measure into `directory`, which must not contain a run; return the run."""
    plan = campaign.plan
    run = new_run(
        command=command,
        seed=plan.seed,
        parameters=parameters_of(campaign),
        environment=_environment(),
        lab={"topology": plan.topology, "rate_bit_s": plan.rate_bit_s, "mtu": plan.mtu, "offloads": False, "loss": 0.0},
    )
    return run_campaign(campaign, directory, run, progress)


def _library() -> Library:
    """The first Open MPI, whose TCP ports can be configured; else any library."""
    found = installed_libraries()
    if not found:
        raise MachineCannot(f"no MPI library is installed: {installed.MPI_FIX}, or give --library a folder")
    return next((library for library in found if library.family is Family.OPEN_MPI), found[0])


def parameters_of(campaign: BenchCampaign) -> dict[str, Any]:
    """What is measured, for the record of the run."""
    plan = campaign.plan
    return {
        "kind": KIND,
        "experiment": plan.experiment,
        "policies": list(plan.policies),
        "host_counts": list(plan.counts),
        "blocks": plan.blocks,
        "topology": plan.topology,
        "rate_bit_s": plan.rate_bit_s,
        "mtu": plan.mtu,
        "fabric": plan.fabric,
        "library": str(campaign.library),
        "ring": {name: value for name, value in asdict(plan.ring).items() if name not in ("overhead_s", "transport")},
        "shape": asdict(plan.shape),
        "training": asdict(plan.training),
        "shuffler": plan.shuffler,
        "announced": plan.announce,
        "wire_efficiency": plan.wire_efficiency,
        "patience_s": plan.patience_s,
        "confidence": plan.confidence,
    }


def _environment() -> dict[str, Any]:
    facts = describe_machine()
    program = openvswitch.find_program("ovs-vswitchd")
    version = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    if version.returncode != 0:
        raise MeasurementFailed(f"{program} --version failed: {version.stderr.strip()}")
    facts["versions"]["openvswitch"] = version.stdout.split("\n", 1)[0].rsplit(" ", 1)[-1]
    return facts
