# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`barewire sdn`: one network for HPC and Big Data. Each command's body is a file of its own."""

import typer

from barewire.cli import sdn_simulate

app = typer.Typer(no_args_is_help=True, help="One network for HPC and Big Data: a controller and its strategies.")
app.command()(sdn_simulate.simulate)
