# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`barewire sdn`: the controller and its strategies, one module per command."""

from barewire.cli import (
    sdn_announce,
    sdn_bench,
    sdn_flows,
    sdn_learn,
    sdn_simulate,
    sdn_start,
    sdn_status,
    sdn_withdraw,
)
from barewire.cli.groups import typer_group

app = typer_group("One network for HPC and Big Data: a controller and its strategies.")
app.command()(sdn_start.start)
app.command()(sdn_announce.announce)
app.command()(sdn_withdraw.withdraw)
app.command()(sdn_flows.flows)
app.command()(sdn_status.status)
app.command()(sdn_simulate.simulate)
app.command()(sdn_bench.bench)
app.command()(sdn_learn.learn)
