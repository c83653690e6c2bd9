# SPDX-License-Identifier: Apache-2.0 OR MIT
"""One schema of samples and one of run.json: documented as they are, older versions read, newer ones refused."""

import json
from pathlib import Path

import polars as pl
import pytest
from jsonschema import Draft202012Validator
from synthetic import synthetic_run
from synthetic_host import synthetic_host
from synthetic_mpi import synthetic_mpi

from barewire.errors import WrongUse
from barewire.results.run_schema import run_schema, text
from barewire.results.schema import (
    COLUMNS,
    METADATA_KEY,
    SAMPLE_SCHEMA,
    SAMPLES_SCHEMA,
    SAMPLES_VERSION,
    columns_table,
    sample_frame,
)
from barewire.results.store import read_run, samples, write_run

DOCS = Path(__file__).parents[2] / "docs"


def test_the_documentation_has_every_column_as_it_is():
    assert columns_table() in (DOCS / "data.md").read_text(), f"docs/data.md should have:\n{columns_table()}"


def test_the_published_json_schema_is_that_of_the_code():
    fix = "python -m barewire.results.run_schema > docs/run.schema.json"
    assert (DOCS / "run.schema.json").read_text() == text(), fix


def test_every_kind_of_run_is_valid(tmp_path):
    Draft202012Validator.check_schema(run_schema())
    synthetic_run(tmp_path / "bench", launches=3, samples_per_launch=10, sizes=(64,))
    synthetic_mpi(tmp_path / "mpi", "pingpong", "alltoall", launches=2, sizes=(8, 64))
    write_run(tmp_path / "host", *synthetic_host(tmp_path))
    for kind in ("bench", "mpi", "host"):
        document = json.loads((tmp_path / kind / "run.json").read_text())
        Draft202012Validator(run_schema()).validate(document)
        assert document["series"], "the series were checked as well"


def test_the_json_schema_finds_damage(tmp_path):
    synthetic_run(tmp_path, launches=3, samples_per_launch=10, sizes=(64,))
    document = json.loads((tmp_path / "run.json").read_text())
    validator = Draft202012Validator(run_schema())
    del document["series"][0]["median"]
    document["series"][1]["ci95"] = [1.0]
    document["series"][2]["stop"] = "tired"
    document["launches"][0]["index"] = "first"
    found = {error.absolute_path[0] for error in validator.iter_errors(document)}
    assert found == {"series", "launches"}
    assert len(list(validator.iter_errors(document))) >= 3


@pytest.mark.parametrize("version", range(1, SAMPLES_VERSION + 1))
def test_samples_of_every_version_are_read_with_defaults(tmp_path, version):
    synthetic_run(tmp_path, launches=3, samples_per_launch=10, sizes=(64,))
    now = samples(tmp_path)
    old = now.select(column.name for column in COLUMNS if column.since <= version)
    # Text was not categorical in the first version.
    old = old.with_columns(pl.col(pl.Categorical).cast(pl.String)) if version == 1 else old
    old.write_parquet(tmp_path / "samples.parquet")
    read = samples(tmp_path)
    assert read.schema == SAMPLE_SCHEMA
    assert read.equals(now)


def test_columns_that_came_later_have_defaults():
    assert all(column.name in sample_frame(_least()).columns for column in COLUMNS)
    assert SAMPLES_VERSION == 4, "a new column needs a new version, and a test of the conversion"


@pytest.mark.parametrize(
    ("schema", "reason"),
    [(f"barewire-samples/{SAMPLES_VERSION + 1}", "newer Barewire"), ("other/1", "have the schema 'other/1'")],
)
def test_samples_of_newer_and_foreign_schemas_are_refused(tmp_path, schema, reason):
    synthetic_run(tmp_path, launches=3, samples_per_launch=10, sizes=(64,))
    assert pl.read_parquet_metadata(tmp_path / "samples.parquet")[METADATA_KEY] == SAMPLES_SCHEMA
    samples(tmp_path).write_parquet(tmp_path / "samples.parquet", metadata={METADATA_KEY: schema})
    with pytest.raises(WrongUse, match=reason):
        samples(tmp_path)
    assert read_run(tmp_path).series


def _least() -> pl.DataFrame:
    """One sample with only the columns that have no default."""
    text = {"test": "pingpong", "subject": "tcp", "phase": "measure", "unit": "us"}
    return pl.DataFrame([{**text, "launch": 0, "message_bytes": 64, "block": 0, "value": 1.5}])
