# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`barewire model` and `barewire predict` on runs with known costs: numbers, words, and refusals."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from synthetic import COST_US, run_of, series_of, synthetic_run
from synthetic_mpi import COST, EAGER_BYTES, HANDSHAKE_US, OVERHEADS, subject, synthetic_mpi, time_us
from typer.testing import CliRunner

from barewire.cli.commands import app
from barewire.errors import WrongUse
from barewire.models.loggp import LogGP
from barewire.results.fits import logp_fits
from barewire.results.model import Model
from barewire.results.run import Series
from barewire.results.store import read_run, write_run
from barewire.study import tables

FINE = tuple(sorted({*(2**n for n in range(3, 21)), 3 * 2**14, 3 * 2**15}))


def invoke(*arguments: object) -> str:
    done = CliRunner().invoke(app, [str(argument) for argument in arguments], env={"COLUMNS": "160"})
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.stdout


def document(*arguments: object) -> dict[str, Any]:
    return dict(json.loads(invoke(*arguments, "--json")))


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("bench")
    synthetic_run(directory, tests=("pingpong",), subjects=("tcp", "raw"))
    return directory


@pytest.fixture(scope="module")
def mpi(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("mpi")
    subjects = (subject("openmpi", "tcp", eager=EAGER_BYTES), subject("openmpi", "barewire"))
    synthetic_mpi(directory, "pingpong", "logp", "overlap", subjects=subjects, sizes=FINE)
    return directory


def test_parameters_of_a_run_are_those_that_made_it(bench: Path) -> None:
    for fit in document("model", bench)["latency"]:
        fixed_us, per_kib_us = COST_US[fit["subject"]]
        assert fit["hockney"]["alpha_us"]["value"] == pytest.approx(fixed_us, rel=0.02)
        assert fit["hockney"]["rate_mbit_s"]["value"] == pytest.approx(8192 / per_kib_us, rel=0.02)
        low, high = fit["hockney"]["alpha_us"]["ci95"]
        assert low < fit["hockney"]["alpha_us"]["value"] < high
    assert "Hockney" in (text := invoke("model", bench)) and "cannot say: break points need 8 sizes" in text
    assert "raw Ethernet against TCP: faster at all sizes" in text


def test_breaks_have_names_and_steps_have_intervals(mpi: Path) -> None:
    found = document("model", mpi)
    (fit,) = (f for f in found["latency"] if "+eager" in f["subject"] and f["variant"] == "blocking-standard")
    (named,) = fit["pieces"]["breaks"]
    assert named["causes"][0] == "the configured eager limit"
    assert named["step_us"]["value"] == pytest.approx(HANDSHAKE_US, rel=0.1)
    text = invoke("model", mpi, "--model", "pieces,loggps")
    assert "the configured eager limit" in text and "Pieces" in text and "Hockney" not in text
    assert "; off by " in text and "% (root mean square)" in text
    assert "and no longer message makes up for it" in text, "both lines have the same slope"


def test_the_logp_family_is_fitted_where_overheads_were_measured(mpi: Path) -> None:
    (found,) = (f["loggp"] for f in document("model", mpi)["logp"] if f["subject"] == "openmpi/barewire")
    eel = time_us("barewire", 8)
    assert found["latency_us"]["value"] == pytest.approx((1 - OVERHEADS) * eel, rel=0.03)
    assert found["us_per_byte"] is None and "3 sizes" in found["unsaid"][0]
    assert "overlap can hide" in invoke("model", mpi)


def test_a_prediction_from_a_model_is_that_from_its_run(bench: Path, tmp_path: Path) -> None:
    stored = tmp_path / "model.json"
    stored.write_text(invoke("model", bench, "--json"))
    asked = ("--kernel", "allreduce", "-n", "2,4,8", "--sizes", "8,64KiB,1MiB", "--cores", "8")
    first, second = document("predict", bench, *asked), document("predict", stored, *asked)
    assert first["predictions"] == second["predictions"]
    (ring,) = (
        p
        for p in first["predictions"]
        if (p["subject"], p["way"], p["ranks"], p["message_bytes"]) == ("raw", "ring", 8, 65536)
    )
    fixed_us, per_kib_us = COST_US["raw"]
    assert ring["time_us"]["value"] == pytest.approx(14 * (fixed_us + 8 * per_kib_us), rel=0.03)
    assert ring["time_us"]["ci95"][0] < ring["time_us"]["value"] < ring["time_us"]["ci95"][1]
    beyond = [p for p in first["predictions"] if p["message_bytes"] == 1 << 20 and p["way"] == "recursive doubling"]
    assert beyond and all("beyond the measured sizes" in p["marks"] for p in beyond)


def test_short_messages_are_beyond_the_measured_sizes_if_none_as_short_was_measured(tmp_path: Path) -> None:
    for smallest, marks in ((1024, ["beyond the measured sizes"]), (64, [])):
        run = tmp_path / str(smallest)
        synthetic_run(run, tests=("pingpong",), subjects=("raw",), sizes=(smallest, 4096, 16384))
        (found,) = document("predict", run, "--kernel", "pingpong", "--sizes", "8")["predictions"]
        assert found["marks"] == marks


def test_one_rank_sends_nothing_and_spoils_no_other_prediction(mpi: Path, tmp_path: Path) -> None:
    synthetic_mpi(tmp_path, "fft", subjects=(subject("openmpi", "barewire"),), ranks=(1,))
    asked = ("--kernel", "pingpong,bcast,barrier,fft", "--order", "16", "-n", "1,2", "--sizes", "64", "--cores", "2")
    found = document("predict", mpi, tmp_path, *asked, "--subject", "openmpi/barewire")
    assert {(p["kernel"], p["ranks"]) for p in found["predictions"]} == {
        *(("pingpong", 2), ("bcast", 2), ("barrier", 2)),
        *(("fft", 1), ("fft", 2)),
    }
    assert [sentence.partition(",")[0] for sentence in found["cannot_say"]] == ["pingpong", "bcast", "barrier"]
    assert all("one rank has nobody to send messages to" in sentence for sentence in found["cannot_say"])


def test_ranks_that_share_cores_are_marked_or_refused(bench: Path, mpi: Path) -> None:
    refused = document("predict", bench, "--kernel", "bcast", "-n", "4", "--cores", "2")
    assert not refused["predictions"] and "cannot say: ranks share cores" in refused["cannot_say"][0]
    shared = document("predict", mpi, "--kernel", "bcast", "-n", "4", "--cores", "2", "--sizes", "8")
    assert shared["predictions"] and all("2 ranks share a core" in p["marks"] for p in shared["predictions"])


def test_a_kernel_needs_its_computation_and_is_checked_against_a_held_out_run(mpi: Path, tmp_path: Path) -> None:
    alone, held_out = tmp_path / "alone", tmp_path / "held-out"
    subjects = (subject("openmpi", "barewire"),)
    synthetic_mpi(alone, "fft", subjects=subjects, ranks=(1,))
    synthetic_mpi(held_out, "fft", subjects=subjects, ranks=(4,))
    with pytest.raises(WrongUse, match="no messages between two ranks"):
        invoke("predict", alone, "--kernel", "fft")
    missing = document("predict", mpi, "--kernel", "fft", "-n", "4", "--cores", "8")
    assert "run `barewire mpi fft -n 1`" in missing["cannot_say"][0]
    asked = ("--kernel", "fft", "--cores", "8", "--against", held_out)
    checked = document("predict", mpi, alone, *asked)
    assert {p["way"] for p in checked["predictions"]} == {"original", "non-blocking"}
    for p in checked["predictions"]:
        assert p["error"] == pytest.approx(p["time_us"]["value"] / p["measured_us"]["value"] - 1)
    magnitudes = [abs(p["error"]) for p in checked["predictions"]]
    assert checked["errors"]["fft"]["mean"] == pytest.approx(np.mean(magnitudes))
    assert checked["errors"]["fft"]["worst"] == pytest.approx(max(magnitudes))
    assert "mean error" in invoke("predict", mpi, alone, *asked)
    with pytest.raises(WrongUse, match="another run"):
        invoke("predict", mpi, alone, "--kernel", "fft", "--against", mpi)


def test_collectives_of_a_held_out_run_are_compared_with_the_fastest_algorithm(mpi: Path, tmp_path: Path) -> None:
    synthetic_mpi(tmp_path, "alltoall", subjects=(subject("openmpi", "barewire"),), ranks=(4,))
    asked = ("--kernel", "alltoall", "--cores", "4", "--against", tmp_path)
    (found,) = document("predict", mpi, *asked)["predictions"]
    everything = document("predict", mpi, "--kernel", "alltoall", "-n", "4", "--cores", "4", "--sizes", "64")
    same = [p for p in everything["predictions"] if p["subject"] == found["subject"]]
    assert found["time_us"]["value"] == min(p["time_us"]["value"] for p in same) and len(same) == 3
    assert found["measured_us"]["value"] == pytest.approx(4 * time_us("barewire", 64) + 3)
    with pytest.raises(WrongUse, match="has no bcast"):
        invoke("predict", mpi, "--kernel", "bcast", "--against", tmp_path)


def test_a_solver_is_predicted_from_its_computation_and_checked(mpi: Path, tmp_path: Path) -> None:
    alone, held_out = tmp_path / "alone", tmp_path / "held-out"
    subjects = (subject("openmpi", "barewire"),)
    synthetic_mpi(alone, "krylov", subjects=subjects, ranks=(1,))
    synthetic_mpi(held_out, "krylov", subjects=subjects, ranks=(4,))
    asked = ("--kernel", "krylov", "-n", "4", "--cores", "4", "--subject", "openmpi/barewire")
    missing = document("predict", mpi, *asked, "--side", "96")
    assert "run `barewire mpi krylov -n 1`" in missing["cannot_say"][0]
    predicted = document("predict", mpi, alone, *asked)["predictions"]
    alpha, _ = COST["barewire"]
    times = {each["way"]: each["time_us"]["value"] for each in predicted}
    assert list(times) == ["blocking", "overlapped", "one-reduction", "pipelined"]
    # 40 µs of computation on one rank; on four each has two neighbours, and a reduction takes two rounds.
    assert times["blocking"] > 40 / 4 + 8 * alpha > times["one-reduction"]
    own = document("predict", mpi, *asked, "--variants", "blocking", "--compute-us", "110")["predictions"]
    assert own[0]["time_us"]["value"] - times["blocking"] == pytest.approx(100, rel=0.02)
    checked = document("predict", mpi, alone, *asked, "--against", held_out)["predictions"]
    assert {(each["way"], each["grid"]) for each in checked} == {("blocking", "side_2d"), ("pipelined", "side_2d")}
    assert "side 2d 128" in invoke("predict", mpi, alone, *asked)
    with pytest.raises(WrongUse, match="has 3 points"):
        invoke("predict", mpi, "--kernel", "krylov", "-n", "8", "--side", "3", "--compute-us", "1", "--cores", "8")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--model", "nosuch"), "there are: hockney"),
        (("--subject", "nosuch"), "unknown subject 'nosuch'"),
        (("--rate", "1gbit"), "link of a table"),
        (("--model", "loggp"), "overheads were not measured"),
    ],
)
def test_wrong_use_of_model_is_said(bench: Path, arguments: tuple[str, ...], message: str) -> None:
    with pytest.raises(WrongUse, match=message):
        invoke("model", bench, *arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--kernel", "nosuch"), "there are: pingpong"),
        (("--kernel", "bcast", "-n", "0"), "numbers from 1"),
        (("--kernel", "bcast", "--subject", "nosuch"), "unknown subject"),
        (("--kernel", "bcast", "--sizes", "8", "--against", "runs/other"), "omit --sizes with --against"),
        (("--kernel", "fft", "--order", "20", "--keys", "9", "--against", "runs/other"), "omit --order and --keys"),
    ],
)
def test_wrong_use_of_predict_is_said(bench: Path, arguments: tuple[str, ...], message: str) -> None:
    with pytest.raises(WrongUse, match=message):
        invoke("predict", bench, *arguments)


def test_a_tables_link_has_a_possible_rate() -> None:
    table = Path(tables.__file__).parent / "published" / "paz2010_pingpong.csv"
    for rate in ("0bit", "1bit"):
        with pytest.raises(WrongUse, match="is outside 64kbit"):
            invoke("model", table, "--rate", rate)


def test_too_few_sizes_and_a_run_cut_short_are_said(tmp_path: Path) -> None:
    run = synthetic_run(tmp_path, tests=("pingpong",), subjects=("raw",), sizes=(8, 64), complete=False, launches=3)
    assert "2 were measured" in document("model", tmp_path)["latency"][0]["hockney"]["cannot_say"]
    text = invoke("model", tmp_path)
    assert "cannot say: a line needs 3 sizes" in text and "incomplete" in text
    with pytest.raises(WrongUse, match=r"^raw Ethernet: cannot say: "):
        invoke("model", tmp_path, "--model", "pieces")
    write_run(tmp_path, replace(run, series=()))
    with pytest.raises(WrongUse, match="no times of messages"):
        invoke("model", tmp_path)


def test_mixed_units_and_other_machines_are_refused(tmp_path: Path, bench: Path) -> None:
    run = read_run(bench)
    mixed = replace(run.series[0], unit="Mbit/s")
    write_run(tmp_path / "mixed", replace(run, series=(mixed, *run.series[1:])))
    with pytest.raises(WrongUse, match="mix times and rates"):
        invoke("model", tmp_path / "mixed")
    other = replace(run, id="other", environment={**run.environment, "kernel": "5.10"})
    write_run(tmp_path / "other", other)
    with pytest.raises(WrongUse, match="different machines"):
        invoke("predict", bench, tmp_path / "other", "--kernel", "pingpong")


@pytest.mark.parametrize(("value", "unit"), [(0.0, "us"), (-1.0, "us"), (0.0, "Mbit/s"), (1.0, "KiB")])
def test_values_that_are_no_times_are_refused(tmp_path: Path, bench: Path, value: float, unit: str) -> None:
    run = read_run(bench)
    series = tuple(replace(each, launch_medians=(value,) * 6, launch_numbers=(), unit=unit) for each in run.series)
    write_run(tmp_path, replace(run, series=series))
    with pytest.raises(WrongUse, match="pingpong of"):
        invoke("model", tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("message_bytes,time_us\n8,1\n64,-2\n", "line 3"),
        ("message_bytes,time_us\n8,1\n64,nan\n", "line 3"),
        ("message_bytes,time_us\n8.5,1\n", "line 2"),
        ("size,time\n8,1\n", "needs a column message_bytes"),
        ("message_bytes,a_us,b_s\n8,1,2\n", "one column of times"),
        ("message_bytes,time_us\n8,1\n8,1.1\n64,2\n", "more rows of some sizes"),
        ("", "needs a column"),
        ("message_bytes,time_us\n", "no rows"),
        ('message_bytes,time_us\n8,"1\n64,2"\n128,3\n', "a line for each row"),
        (f"message_bytes,time_us\n8,{'1' * 200_000}\n", "a line for each row"),
    ],
)
def test_tables_that_are_none_are_refused(tmp_path: Path, text: str, message: str) -> None:
    table = tmp_path / "table.csv"
    table.write_text(text)
    with pytest.raises(WrongUse, match=message):
        invoke("model", table)


def test_a_published_table_is_modelled_and_what_cannot_be_is_said() -> None:
    text = invoke("model", Path(tables.__file__).parent / "published" / "paz2010_pingpong.csv", "--rate", "1gbit")
    assert "5.5 µs one way for 1400 B is impossible" in text and "cannot say: a line needs 3 sizes" in text


def test_a_document_that_is_no_model_is_refused(tmp_path: Path) -> None:
    for text, message in (("{}", "no model"), ('{"schema": "barewire-model/1"}', "damaged"), ("x", "not JSON")):
        (tmp_path / "model.json").write_text(text)
        with pytest.raises(WrongUse, match=message):
            invoke("predict", tmp_path / "model.json", "--kernel", "bcast")


@pytest.mark.parametrize(
    ("name", "value"),
    [("rate_bit_s", "x"), ("rate_bit_s", 0), ("mtu", "x"), ("mtu", [0]), ("cores", 0), ("cores", "x")],
)
def test_a_damaged_value_of_a_model_is_an_error(tmp_path: Path, name: str, value: object) -> None:
    document = Model((), 1e9, 1500, 4, {}, ()).to_json()
    assert Model.from_json(document).mtu == 1500
    (tmp_path / "model.json").write_text(json.dumps({**document, name: value}))
    with pytest.raises(WrongUse, match="the model is damaged"):
        invoke("predict", tmp_path / "model.json", "--kernel", "bcast")


@pytest.mark.parametrize("value", ["nan", "inf"])
def test_a_computation_is_a_finite_time(value: str) -> None:
    with pytest.raises(WrongUse, match=f"--compute-us must be a number of µs from 0 on, not {value}"):
        invoke("predict", Path("none"), "--kernel", "krylov", "--compute-us", value)


def test_a_subject_whose_gap_noise_made_negative_does_not_hide_the_others() -> None:
    def logp_of(subject: str, gap_us: float) -> list[Series]:
        times_us = {"eel": 5.0, "os": 1.0, "or": 1.0, "gap": gap_us}
        return [
            replace(
                series_of([time + size / 100] * 6, subject=subject, test="logp", message_bytes=size),
                **{"variant": "logp", "quantity": name, "ranks": 2},
            )
            for name, time in times_us.items()
            for size in (8, 64, 512)
        ]

    noisy, good = logp_fits(run_of("run", [*logp_of("openmpi/tcp", -50.0), *logp_of("openmpi/barewire", 2.0)]))
    assert noisy.loggp == "logp of openmpi/tcp: times must be finite and above 0, and sizes 0 or more; measure again"
    assert isinstance(good.loggp, LogGP)
