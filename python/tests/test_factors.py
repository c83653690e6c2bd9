# SPDX-License-Identifier: Apache-2.0 OR MIT
"""MTUs and eager limits as factors of one run: planned together, launched on their own links, judged by their own."""

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from synthetic_mpi import Synthetic, subject, synthetic_mpi
from typer.testing import CliRunner

from barewire.cli.bench import _parse_tuned
from barewire.cli.commands import app
from barewire.cli.measuring import facts_of_all
from barewire.cli.mpi import _eager_limits
from barewire.errors import BarewireError
from barewire.measure import mpi as measure_mpi
from barewire.measure import runner
from barewire.measure.mpi import MpiPlan, MpiSite
from barewire.measure.recover import recover_run
from barewire.measure.runner import Plan, ProbeCampaign
from barewire.measure.session import StoppingRule, launch_file_name
from barewire.measure.subjects import parse_subjects, swept
from barewire.models.wire import Link, latency_limit_us
from barewire.mpi import HostSlots
from barewire.report.figures import style_of
from barewire.report.run_page import render
from barewire.report.versus import compare_in_run
from barewire.results.fits import latency_fits
from barewire.results.limits import limits_of, link_mtu
from barewire.results.model import model_of
from barewire.results.schema import sample_frame
from barewire.results.series import series_from_samples
from barewire.results.store import read_run, samples, write_run

MTUS, EAGERS, SIZES = (1500, 9000), (4096, 65536), (8, 8192, 131072)
RULE = StoppingRule(2, 2)
SUBJECTS = tuple(
    dataclasses.replace(subject("openmpi", fabric, eager=eager), mtu=mtu)
    for fabric in ("barewire", "tcp")
    for eager in (None, EAGERS[0])
    for mtu in MTUS
)


def sites(kind: type) -> dict[int, Any]:
    """Stand-ins for sites, which only say which they are."""
    return {mtu: kind(mtu=mtu, lab=None, shares=lambda ranks: [("h1", ranks)]) for mtu in MTUS}


def test_each_round_of_the_probe_launches_every_combination_once_in_another_order_each_on_its_link(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    subjects = swept(parse_subjects("tcp,messages", "spin"), {"eager_bytes": EAGERS}, MTUS)
    plan = Plan(("pingpong", "stream"), subjects, (64,), seed=1, tuned=(("window", 8),), stopping_rule=RULE)
    site = cast(Any, SimpleNamespace(can_run_floor=True))
    launched: list[tuple[int, str, tuple[tuple[str, int], ...]]] = []
    monkeypatch.setattr(
        runner, "launch", lambda at, order, _: launched.append((at.mtu, order.subject.name, order.tuned))
    )
    campaign = ProbeCampaign(site, plan, cast(Any, sites(SimpleNamespace)))
    first, second = campaign.rounds()
    for orders in (first, second):
        cells = [(order.test, order.subject.name) for order in orders]
        names = [*(each.name for each in subjects), "floor+mtu=1500", "floor+mtu=9000"]
        assert sorted(cells) == sorted((test, name) for test in plan.tests for name in names)
        for order in orders:
            campaign.launch(order, tmp_path)
    order_of = [[order.label for order in orders] for orders in (first, second)]
    assert order_of[0] != order_of[1] and order_of[0] != sorted(order_of[0])
    assert all(name.endswith(f"mtu={mtu}") for mtu, name, _ in launched) and len(launched) == 2 * 2 * 8
    eager = {tuned for _, name, tuned in launched if name.startswith("messages+eager_bytes=4096")}
    assert eager == {(("window", 8), ("eager_bytes", 4096))}


def test_each_round_of_mpi_launches_every_combination_once_each_on_its_link(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    plan = MpiPlan(("pingpong",), SUBJECTS, (2, 4), seed=1, stopping_rule=RULE)
    programs = {("openmpi", "pingpong"): "/nowhere"}
    used: list[str] = []
    monkeypatch.setattr(measure_mpi, "prepare", lambda *arguments, **_: used.append(arguments[1].fabric))
    labs: list[Any] = []
    monkeypatch.setattr(measure_mpi.start, "run_watched", lambda job, lab, *_: labs.append(lab) or 0)
    by_mtu = {mtu: MpiSite((HostSlots("h1", 4),), Link(None, mtu), cast(Any, f"lab {mtu}")) for mtu in MTUS}
    campaign = measure_mpi.MpiCampaign(by_mtu[1500], plan, programs, by_mtu)
    rounds = list(campaign.rounds())
    for orders in rounds:
        assert sorted(order.label for order in orders) == sorted(
            f"pingpong {each.name} × {ranks}" for each in SUBJECTS for ranks in plan.ranks
        )
    for order in rounds[0]:
        campaign.launch(order, tmp_path / "records")
        assert labs[-1] == f"lab {order.subject.mtu}"
    assert plan.mtus == [1500, 9000] and MpiPlan(("pingpong",), (subject("openmpi", "tcp"),), (2,), seed=1).mtus == []


def test_every_combination_is_a_subject_of_its_own_in_results_models_and_comparisons(tmp_path: Path) -> None:
    run = synthetic_mpi(tmp_path / "run", "pingpong", subjects=SUBJECTS, sizes=SIZES, launches=2, link=Link(1e9, 1500))
    names = {each.name for each in SUBJECTS}
    assert {series.subject for series in run.series} == names
    assert read_run(tmp_path / "run").parameters["mtu"] == [1500, 9000] == run.environment["link"]["mtu"]
    for series in run.series:
        mtu = link_mtu(run, series.subject)
        protocol = "tcp" if "/tcp" in series.subject else "raw"
        assert mtu is not None and series.limit == latency_limit_us(series.message_bytes, protocol, mtu, 1e9)
    compared = {(versus.a.subject, versus.b.subject) for versus in compare_in_run(run, "tcp")}
    assert compared == {
        (each.name, f"openmpi/tcp+mtu={each.mtu}") for each in SUBJECTS if each.name != f"openmpi/tcp+mtu={each.mtu}"
    }
    assert {fit.subject for fit in latency_fits(run)} == names == model_of([run]).functions.keys()
    limits = {limit.name: limit.message_bytes for limit in limits_of(run, "openmpi/barewire+eager=4096+mtu=9000")}
    assert limits["a second frame"] == 9000 and limits["the configured eager limit"] == 4096


def test_the_page_has_a_wire_limit_for_each_mtu_and_tells_subjects_apart(tmp_path: Path) -> None:
    subjects = tuple(each for each in SUBJECTS if each.requested.eager is None)
    run = synthetic_mpi(tmp_path, "pingpong", subjects=subjects, sizes=SIZES, launches=1, link=Link(1e9, 1500))
    page = render(run, samples(tmp_path))
    for mtu in MTUS:
        assert f"wire limit, TCP, MTU {mtu}" in page and f"wire limit, raw Ethernet, MTU {mtu}" in page
    styles = [style_of(each.name) for each in subjects]
    shown = [(style["line"]["color"], style["line"]["dash"], style["marker"]["symbol"]) for style in styles]
    assert len({*shown}) == len(subjects) == len({style["name"] for style in styles})
    assert style_of("tcp+mtu=9000")["marker"]["symbol"] == f"{style_of('tcp')['marker']['symbol']}-open"
    assert "the same library over TCP with the same MTU" in page


def test_a_killed_run_of_several_mtus_is_recovered(tmp_path: Path) -> None:
    """As if its process had ended after the first launch's file."""
    run = synthetic_mpi(tmp_path / "run", "pingpong", subjects=SUBJECTS[:2], sizes=SIZES, launches=1)
    killed = tmp_path / "killed"
    write_run(killed, dataclasses.replace(run, complete=False, launches=(), series=()))
    campaign = Synthetic(MpiSite((), Link(None)), MpiPlan(("pingpong",), SUBJECTS[:2], (2,), seed=1, sizes=SIZES), {})
    order = next(campaign.rounds())[0]
    (killed / "launches").mkdir()
    campaign.launch(order, killed / "launches" / launch_file_name(order.number, order.test, order.subject_name))
    assert {series.subject for series in recover_run(killed).series} == {order.subject_name}


def test_the_floor_of_another_mtu_is_no_limit() -> None:
    row = {"launch": 0, "test": "pingpong", "message_bytes": 8000, "phase": "measure", "block": 0, "unit": "us"}
    values = {"raw+mtu=1500": 20.0, "floor+mtu=1500": 19.0, "raw+mtu=9000": 10.0, "floor+mtu=9000": 9.0}
    rows = [row | {"subject": name, "value": value} for name, value in values.items()]
    frame = sample_frame({name: [each[name] for each in rows] for name in rows[0]})
    series = {each.subject: each for each in series_from_samples(frame, Link(None))}
    assert series["raw+mtu=1500"].limit == 19.0 and series["raw+mtu=9000"].limit == 9.0
    assert {each.verdict for name, each in series.items() if name.startswith("raw")} == {"ok"}


def test_facts_of_labs_that_differ_in_their_mtu_are_one_description() -> None:
    labs = [{"id": name, "topology": "pair", "mtu": mtu} for name, mtu in zip("ab", MTUS, strict=True)]
    assert facts_of_all(labs) == {"id": "a,b", "topology": "pair", "mtu": [1500, 9000]}
    assert facts_of_all(labs[:1]) == labs[0]


def test_tuning_may_be_given_at_once_or_repeated() -> None:
    assert _parse_tuned(["eager_bytes=4096,65536", "window=8"]) == {"eager_bytes": (4096, 65536), "window": (8,)}
    assert _parse_tuned(["eager_bytes=4096", "eager_bytes=65536"]) == {"eager_bytes": (4096, 65536)}


def test_eager_limits_are_sizes_or_the_librarys_own() -> None:
    assert _eager_limits("default,0,4096,4KiB..16KiB,64KiB") == (None, 0, 4096, 8192, 16384, 65536)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("mpi", "pingpong", "--mtu", "1500,huge"), "--mtu takes numbers of bytes with commas"),
        (("mpi", "pingpong", "--mtu", "1500,9"), "68 to 65535"),
        (("mpi", "pingpong", "--mtu", ""), "--mtu takes numbers of bytes"),
        (("mpi", "pingpong", "--mtu", "1500,9000", "--hosts", "localhost"), "each MTU needs links of its own"),
        (("mpi", "pingpong", "--eager", "default,some"), "--eager takes numbers from 0 and sizes"),
        (
            ("bench", "pingpong", "--mtu", "1500,9000", "--hosts", "localhost,localhost"),
            "each MTU needs links of its own",
        ),
        (("bench", "pingpong", "--mtu", "1500;9000"), "--mtu takes numbers of bytes"),
        (("bench", "pingpong", "--tuned", "eager_bytes=4096,"), "is no tuning"),
        (("bench", "pingpong", "--transport", "tcp", "--tuned", "eager_bytes=1,2"), "--tuned applies to"),
    ],
)
def test_bad_factors_are_rejected_with_advice(arguments: tuple[str, ...], message: str) -> None:
    done = CliRunner().invoke(app, arguments)
    assert isinstance(done.exception, BarewireError) and done.exception.exit_code == 2, done.exception
    assert message in str(done.exception)
