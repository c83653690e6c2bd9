# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The launches of an experiment, each in a new lab, so that no state carries over."""

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from barewire.lab import Lab, LinkSpec
from barewire.measure.records import LaunchRecords
from barewire.measure.sdn_records import SCHEMA, read_sdn_records
from barewire.measure.session import StoppingRule
from barewire.mpi import Library
from barewire.results.run import Run, Series
from barewire.results.sdn import JOB
from barewire.results.series import series_from_samples
from barewire.sdn.bench.controlled import controlled
from barewire.sdn.bench.meter import Meter
from barewire.sdn.bench.outcome import concluded
from barewire.sdn.bench.plan import LATENCY, RING, SHUFFLE, BenchPlan, Order, controller_strategies
from barewire.sdn.bench.relay import Relay
from barewire.sdn.bench.stage import Stage
from barewire.sdn.replay.repeated import Replayed

# The number of blocks limits a run, not its time.
_NO_BUDGET_S = 1e9


@dataclass(frozen=True)
class BenchCampaign:
    """An experiment's launches; `beff` is the program of rings, `relay` the live page, if wanted."""

    plan: BenchPlan
    library: Library
    beff: str
    relay: Relay | None = None

    @property
    def stopping_rule(self) -> StoppingRule:
        """One round per block."""
        return StoppingRule(self.plan.blocks, self.plan.blocks, budget_s=_NO_BUDGET_S)

    def rounds(self) -> Iterator[Sequence[Order]]:
        """The plan's blocks."""
        return self.plan.rounds()

    def launch(self, order: Order, records: Path) -> None:
        """Create a lab and a controller, measure one job, write its records."""
        plan = self.plan
        with ExitStack() as stack:
            lab = stack.enter_context(
                Lab.up(plan.network_of(order.policy, order.hosts), LinkSpec(plan.rate_bit_s, plan.mtu))
            )
            strategies = controller_strategies(order.policy)
            controller = stack.enter_context(
                controlled(
                    lab,
                    strategies,
                    plan.rate_bit_s,
                    ["--ui"] if self.relay is not None else (),
                    plan.tenants_of(order),
                )
            )
            if self.relay is not None:
                stack.enter_context(self.relay.showing(controller.api, controller.token))
            meter = Meter(lab.servers.values(), controller.process)
            stage = Stage(lab, controller, plan, self.library, self.beff, meter)
            native = lab.directory / "records.jsonl"
            done: Mapping[str, Replayed] = {}
            try:
                done = _measure(stage, order, native)
            finally:
                _write(records, order, stage, native, done)

    def read(self, order: Order, records: Path) -> LaunchRecords:
        """Read that file."""
        return read_sdn_records(records, order.number, order.subject_name)

    def series(self, frame: pl.DataFrame) -> list[Series]:
        """Rings' values and jobs' durations; their limits are those of the experiment, not of one link."""
        return series_from_samples(frame)

    def conclude(self, run: Run, frame: pl.DataFrame) -> Run:
        """Add the bound and the simulator's prediction for each launch."""
        return concluded(run, frame, self.plan)


def _measure(stage: Stage, order: Order, native: Path) -> dict[str, Replayed]:
    """Measure rings into their file, or jobs; return the jobs by their quantities."""
    if order.test in (RING, LATENCY):
        with ExitStack() as beside:
            if order.other_hosts:
                beside.enter_context(stage.shuffles_beside(order.other_hosts, order.seed))
            stage.measure_ring(order, native)
        return {}
    if order.test != SHUFFLE:
        return stage.measure_jobs(order)
    with ExitStack() as beside:
        still = beside.enter_context(stage.rings_beside(order.other_hosts, order.seed)) if order.other_hosts else None
        done = stage.measure_shuffle(order)
        if still is not None:
            still()
    return {JOB: done}


def _write(records: Path, order: Order, stage: Stage, native: Path, done: Mapping[str, Replayed]) -> None:
    """Write the launch's facts, then its measurements."""
    facts = {
        "record": "launch",
        "schema": SCHEMA,
        "test": order.test,
        "policy": order.policy,
        "hosts": order.count,
        "placed": list(order.hosts),
        "beside": list(order.other_hosts),
        "block": order.block,
        "seed": order.seed,
        "load": None,
        "notes": stage.notes,
    }
    with suppress(ValueError):  # nothing was measured
        facts["load"] = stage.meter.used()
    with records.open("w") as file:
        file.write(json.dumps(facts) + "\n")
        if native.exists():
            with native.open() as measured:
                shutil.copyfileobj(measured, file)
        for name, job in done.items():
            fetched = [[fetch.reducer, fetch.size_bytes, fetch.began_s, fetch.ended_s] for fetch in job.fetched]
            record = {"record": "job", "quantity": name, "duration_s": job.duration_s, "fetched": fetched}
            file.write(json.dumps(record) + "\n")
        if done:
            file.write(json.dumps({"record": "end", "complete": True}) + "\n")
