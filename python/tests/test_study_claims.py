# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What becomes of a study's claims on runs with known answers."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import numpy as np
import polars as pl
import pytest
from study_plans import CLAIM, COMMAND, CROSSOVER, HOST_STEP, LATENCY, NOTHING, STEP, judged, record_of, times, written
from synthetic import run_of, series_of
from synthetic_host import synthetic_host
from synthetic_sdn import synthetic_sdn

from barewire.errors import WrongUse
from barewire.results.run import Run, Series
from barewire.results.sdn import summarised
from barewire.study import claims, network_claims
from barewire.study.claims import judge
from barewire.study.findings import Finding
from barewire.study.page import render_study
from barewire.study.plan import read_plan
from barewire.study.report import markdown, table_of
from barewire.study.steps import Done, Record


@pytest.mark.parametrize(
    ("factors", "verdict", "says"),
    [
        (0.8, "held", "Better in all 4 rows"),
        (1.2, "did not hold", "Better in 0 of 4"),
        ({8: 0.8, 64: 0.8, 1024: 1.0, 8192: 0.8}, "did not hold", "Better in 3 of 4, not at 1 KiB"),
    ],
)
def test_faster_at_every_size(tmp_path: Path, factors: Mapping[int, float] | float, verdict: str, says: str) -> None:
    finding = judged(tmp_path, CLAIM, times(factors), noise=0.002)
    assert finding.verdict == verdict and says in finding.why, finding.why
    assert [row.label for row in finding.rows] == ["8 B", "64 B", "1 KiB", "8 KiB"]


def test_sides_of_one_subject_are_told_apart_by_what_they_select(tmp_path: Path) -> None:
    claim = CLAIM.replace("openmpi/tcp", "openmpi/barewire").replace(
        '"openmpi/barewire"}\nb', '"openmpi/barewire", message_bytes = 8}\nb'
    )
    finding = judged(tmp_path, f'{claim}key = ["ranks"]', {"openmpi/barewire": {8: 1.0, 64: 2.0}})
    assert finding.names == ("openmpi/barewire (message bytes 8)", "openmpi/barewire (any message bytes)")
    same = judged(tmp_path, CLAIM.replace("openmpi/tcp", "openmpi/barewire"), {"openmpi/barewire": {8: 1.0}})
    assert same.names == ("openmpi/barewire", "openmpi/barewire")


def test_sides_without_values_are_named(tmp_path: Path) -> None:
    """A library or a size that was not measured, such as one of the other form, is no damaged run."""

    def of(kind: str, subject: str, more: str = "") -> Finding:
        side = f'a = {{step = "messages", subject = "{subject}"{more}}}\n'
        other = 'b = {step = "messages", subject = "openmpi/tcp"}\n' if kind == "faster" else "low = 1\nhigh = 9\n"
        return judged(tmp_path, f'[[claim]]\ntext = "x"\nkind = "{kind}"\n{side}{other}', times(1.0))

    for kind in ("faster", "within", "break"):
        finding = of(kind, "mpich-5/tcp", ', variant = ["a", "b"]')
        assert finding.verdict == "cannot be decided" and not finding.rows
        assert finding.why == "step 'messages' has no values of subject mpich-5/tcp, variant a, b", finding.why
    assert of("break", "openmpi/tcp").why == "break points need 8 message sizes or more"
    apart = CLAIM.replace('"openmpi/barewire"', '"openmpi/barewire", message_bytes = 8').replace(
        '"openmpi/tcp"', '"openmpi/tcp", message_bytes = 64'
    )
    assert judged(tmp_path, apart, times(1.0)).why == "the runs have no values of both sides with the same key"
    negative = [
        series_of([-0.5, *[1.0] * 9], subject=name, message_bytes=8) for name in ("openmpi/barewire", "openmpi/tcp")
    ]
    assert judged(tmp_path, CLAIM, {}, more=negative).why == "no usable values at 8 B"
    limit = '[[claim]]\ntext = "x"\nkind = "within"\na = {step = "messages"}\nlow = 0\nhigh = 1\nof_limit = true\n'
    assert judged(tmp_path, limit, times(1.0)).why == "the link has no rate, so no limit of its wire is known"


@pytest.mark.parametrize("kind", ["faster", "no-difference"])
def test_one_launch_is_on_the_page_and_decides_nothing(tmp_path: Path, kind: str) -> None:
    claim = CLAIM.replace('"faster"', f'"{kind}"')
    finding = judged(tmp_path, claim, times(0.8), launches=1)
    assert finding.verdict == "cannot be decided" and "With 1 launch there is no interval" in finding.why, finding.why
    assert "significant" not in finding.why, "nothing was tested"
    plan = written(tmp_path, STEP + claim)
    assert "With 1 launch" in markdown(plan, [finding], record_of(plan), [])
    assert "With 1 launch" in render_study(plan, [finding], record_of(plan), [])


def test_too_few_launches_decide_nothing(tmp_path: Path) -> None:
    finding = judged(tmp_path, CLAIM, times(0.8), launches=2)
    assert finding.verdict == "cannot be decided" and "With 2 launches there is no interval at 95 %" in finding.why


@pytest.mark.parametrize(
    ("factors", "noise", "verdict", "says"),
    [
        (1.0, 0.001, "held", "No difference beyond 2 %"),
        (1.0056, 0.0001, "held", "No difference beyond 2 %"),
        (1.1, 0.001, "did not hold", "The sides differ at 8 B"),
        (1.0, 0.1, "cannot be decided", "is not excluded"),
    ],
)
def test_no_difference_needs_intervals_that_exclude_one(
    tmp_path: Path, factors: float, noise: float, verdict: str, says: str
) -> None:
    finding = judged(tmp_path, CLAIM.replace('"faster"', '"no-difference"'), times(factors), noise=noise)
    assert finding.verdict == verdict and says in finding.why, finding.why


@pytest.mark.parametrize("lost", [[], [-0.5, *[1.0] * 9]])
@pytest.mark.parametrize(("factor", "verdict"), [(0.8, "cannot be decided"), (1.2, "did not hold")])
def test_a_size_without_usable_values_is_named_and_nothing_holds_there(
    tmp_path: Path, lost: list[float], factor: float, verdict: str
) -> None:
    """Every message was lost, or a derived time is below the noise: no ratio, and so no better row."""
    more = [
        series_of(lost, subject="openmpi/barewire", message_bytes=65536),
        series_of([30.0] * 10, subject="openmpi/tcp", message_bytes=65536),
        series_of([30.0] * 10, subject="openmpi/tcp", message_bytes=131072),
    ]
    finding = judged(tmp_path, CLAIM, times(factor), more=more)
    assert finding.verdict == verdict and finding.why.endswith(" No usable values at 64 KiB."), finding.why
    assert len(finding.rows) == 4
    if not lost:
        side = 'a = {step = "messages", subject = "openmpi/barewire"}'
        within = f'[[claim]]\ntext = "x"\nkind = "within"\n{side}\nlow = 1\nhigh = 1000\n'
        finding = judged(tmp_path, within, times(factor), more=more)
        assert finding.verdict == "cannot be decided" and finding.why.endswith("No usable values at 64 KiB.")


def test_values_in_several_units_are_not_held_against_the_same_bounds(tmp_path: Path) -> None:
    stream = series_of([900.0] * 10, subject="openmpi/tcp", test="stream", message_bytes=8, unit="Mbit/s")
    side = 'a = {step = "messages", subject = "openmpi/tcp", message_bytes = 8}'
    claim = f'[[claim]]\ntext = "x"\nkind = "within"\n{side}\nlow = 1\nhigh = 1000\n'
    with pytest.raises(WrongUse, match="'x' compares values in Mbit/s and us"):
        judged(tmp_path, claim, {"openmpi/tcp": {8: 20.0}}, more=[stream])


@pytest.mark.parametrize(
    ("first", "last", "verdict"), [(0.9, 0.7, "held"), (0.7, 0.9, "did not hold"), (0.8, 0.8, "cannot be decided")]
)
def test_a_gain_that_grows(tmp_path: Path, first: float, last: float, verdict: str) -> None:
    claim = CLAIM.replace('"faster"', '"grows"\nkey = ["message_bytes"]')
    finding = judged(tmp_path, claim, times({8: first, 64: 0.8, 1024: 0.8, 8192: last}), noise=0.01)
    assert finding.verdict == verdict, finding.why


def test_a_gain_grows_from_one_number_to_another(tmp_path: Path) -> None:
    """Two series of the same number are no growth, however they differ."""
    sides = CLAIM.replace('"faster"', '"grows"\nkey = ["message_bytes"]').replace(
        'subject = "openmpi/barewire"', 'subject = ["one/barewire", "two/barewire"]'
    )
    fabrics = {"one/barewire": {8: 10.0}, "two/barewire": {8: 5.0}, "openmpi/tcp": {8: 20.0}}
    finding = judged(tmp_path, sides, fabrics)
    assert finding.verdict == "cannot be decided" and "an interval at two numbers" in finding.why, finding.why


def test_series_without_a_claims_key_are_rows_that_say_so(tmp_path: Path) -> None:
    claim = CLAIM.replace('kind = "faster"', 'kind = "faster"\nkey = ["parameter_value"]')
    finding = judged(tmp_path, claim, {"openmpi/barewire": {8: 10.0}, "openmpi/tcp": {8: 20.0}})
    assert finding.verdict == "held" and [row.label for row in finding.rows] == ["no parameter value"]


@pytest.mark.parametrize(
    ("low", "high", "verdict"), [(15, 25, "held"), (50, 60, "did not hold"), (20, 25, "cannot be decided")]
)
def test_a_value_within_bounds(tmp_path: Path, low: float, high: float, verdict: str) -> None:
    side = 'a = {step = "messages", subject = "openmpi/tcp", message_bytes = 8}'
    claim = f'[[claim]]\ntext = "x"\nkind = "within"\n{side}\nlow = {low}\nhigh = {high}\n'
    finding = judged(tmp_path, claim, {"openmpi/tcp": {8: 20.0}}, noise=0.01)
    assert finding.verdict == verdict, finding.why


def test_nothing_hidden_is_a_small_share(tmp_path: Path) -> None:
    """A share may be 0 in every launch, where a ratio has no usable values."""
    side = 'a = {step = "messages", quantity = "hidden_share"}'
    claim = f'[[claim]]\ntext = "x"\nkind = "within"\n{side}\nlow = 0\nhigh = 50\n'
    share = replace(series_of([0.0] * 6, subject="openmpi/tcp", test="overlap", unit="%"), quantity="hidden_share")
    finding = judged(tmp_path, claim, {}, more=[share])
    assert finding.verdict == "held" and finding.why == "0; expected at most 50.0.", finding.why


@pytest.mark.parametrize(
    ("bound", "verdict", "says"),
    [
        ("high = 0.55", "held", "expected at most 0.55"),
        ("high = 0.45", "did not hold", "0.49"),
        ("low = 0.4", "held", "expected at least 0.4"),
        ("low = 0.4\nhigh = 0.6", "held", "expected 0.400 to 0.600."),
        ("high = 0.5", "cannot be decided", "expected at most 0.500."),
    ],
)
def test_a_ratio_within_bounds_is_that_of_the_best_on_each_side(
    tmp_path: Path, bound: str, verdict: str, says: str
) -> None:
    side = 'step = "messages", subject = ["{}", "{}"]'
    sides = f"a = {{{side.format('one/barewire', 'two/barewire')}}}\nb = {{{side.format('one/tcp', 'two/tcp')}}}"
    fabrics = {"one/barewire": 11.0, "two/barewire": 10.0, "one/tcp": 20.0, "two/tcp": 30.0}
    finding = judged(
        tmp_path,
        f'[[claim]]\ntext = "x"\nkind = "ratio"\n{sides}\n{bound}\n',
        {subject: {8: time} for subject, time in fabrics.items()},
        noise=0.01,
    )
    assert finding.verdict == verdict and says in finding.why, finding.why
    assert finding.names == ("two/barewire", "one/tcp") and len(finding.rows) == 1
    # Of rates the higher one is the best.
    with patch.object(claims.Series, "lower_is_better", False):
        finding = judged(
            tmp_path,
            f'[[claim]]\ntext = "x"\nkind = "ratio"\n{sides}\nlow = 0.3\n',
            {subject: {8: time} for subject, time in fabrics.items()},
        )
    assert finding.names == ("one/barewire", "two/tcp")


@pytest.mark.parametrize(("extra_us", "verdict"), [(0.0, "held"), (3.0, "did not hold")])
def test_a_wire_takes_its_time_besides_what_a_link_without_a_rate_takes(
    tmp_path: Path, extra_us: float, verdict: str
) -> None:
    """Of each transport, which is a row of its own: 10 µs and 20 µs without a rate, and 12 µs of the wire."""
    second = STEP[STEP.index("[[step]]") :].replace('"messages"', '"shaped"')
    claim = (
        '[[claim]]\ntext = "x"\nkind = "ratio"\nkey = ["subject", "message_bytes"]\na = {step = "shaped"}\n'
        'b = {step = "messages"}\nbeyond_limit = true\nhigh = 1.03\n'
    )
    plan, generator = written(tmp_path, STEP + second + claim), np.random.default_rng(5)

    def run(directory: Path) -> Run:
        wire = 12.0 if directory.name == "shaped" else 0.0
        late = extra_us if wire else 0.0
        return run_of(
            directory.name,
            [
                replace(
                    series_of(list((time + wire + late) * generator.normal(1, 0.002, 10)), subject=subject),
                    limit=wire or None,
                )
                for subject, time in {"raw": 10.0, "tcp": 20.0}.items()
            ],
        )

    with patch.object(claims, "read_run", run):
        (finding,) = judge(plan, tmp_path, record_of(plan))
    assert finding.verdict == verdict, finding.why
    assert [row.label for row in finding.rows] == ["raw, 64 B", "tcp, 64 B"]
    assert finding.rows[0].ratio == pytest.approx((22 + extra_us) / 22, rel=0.01)


@pytest.mark.parametrize(("rate", "verdict"), [(123.0, "held"), (110.0, "did not hold")])
def test_a_stream_carries_a_share_of_its_wire_s_rate(tmp_path: Path, rate: float, verdict: str) -> None:
    claim = (
        '[[claim]]\ntext = "x"\nkind = "within"\na = {step = "messages"}\nof_limit = true\nlow = 0.95\nhigh = 1.01\n'
    )
    plan = written(tmp_path, STEP + claim)
    values = [rate + 0.01 * number for number in range(10)]
    series = [replace(series_of(values, test="stream", unit="MB/s"), limit=125.0)]
    with patch.object(claims, "read_run", lambda directory: run_of(directory.name, series)):
        (finding,) = judge(plan, tmp_path, record_of(plan))
    assert finding.verdict == verdict, finding.why
    assert finding.rows[0].ratio == pytest.approx(rate / 125, abs=0.001) and finding.rows[0].unit == "of the limit"


@pytest.mark.parametrize(
    ("more", "errors", "with_interval", "verdict"),
    [
        ("", [0.05, -0.1, 0.01, 0.02], True, "held"),
        ("", [0.05, -0.2, 0.01, 0.02], True, "did not hold"),
        ("", [0.05, -0.1, 0.01, 0.02], False, "cannot be decided"),
        ("mean = true\n", [0.05, -0.06, 0.04, 0.05, 0.06, -0.2], False, "held"),
        ("mean = true\n", [0.35, -0.36, 0.34, 0.35, 0.36, -0.3], False, "did not hold"),
        ("mean = true\n", [], False, "cannot be decided"),
    ],
)
def test_predictions_are_judged_by_their_errors(
    tmp_path: Path, more: str, errors: list[float], with_interval: bool, verdict: str
) -> None:
    """Each by the interval of the measured time, or all by that of their mean."""
    claim = f'[[claim]]\ntext = "x"\nkind = "predicted"\nstep = "messages"\nhigh = 0.15\n{more}'
    plan = written(tmp_path, STEP.replace(COMMAND, '"predict", "runs/a", "--against", "runs/b"') + claim)
    predictions = [
        {
            "measured_as": "fft original",
            "ranks": 4,
            "message_bytes": 0,
            "time_us": {"value": 100 * (1 + error)},
            "measured_us": {"value": 100.0, "ci95": [99.0, 101.0] if with_interval else None},
            "error": error,
        }
        for error in errors
    ]
    document = {"predictions": predictions, "cannot_say": [] if errors else ["fft: cannot say: no model"]}
    (tmp_path / "messages.json").write_text(json.dumps(document))
    (finding,) = judge(plan, tmp_path, record_of(plan))
    assert finding.verdict == verdict, finding.why
    if not errors:
        assert finding.why == "fft: cannot say: no model"
    elif not more and with_interval:
        (low, high), error = finding.rows[1].interval or (0, 0), abs(errors[1])
        assert low < error < high
    else:
        assert "|  | today | verdict |" in markdown(plan, [finding], record_of(plan), [])


def test_a_break_is_found_where_it_was_published_or_not(tmp_path: Path) -> None:
    """The row has the break's place with its interval, and beside it the published one."""
    sizes = [2**power for power in range(4, 18)]
    curve = {"openmpi/tcp": {size: 10 + size / 1000 + (30 if size > 4096 else 0) for size in sizes}}
    for low, high, verdict in [(4096, 8192, "held"), (64, 256, "did not hold")]:
        side = 'a = {step = "messages", subject = "openmpi/tcp"}'
        claim = f'[[claim]]\ntext = "x"\nkind = "break"\n{side}\nlow = {low}\nhigh = {high}\n'
        finding = judged(tmp_path, claim, curve, noise=0.005)
        assert finding.verdict == verdict, finding.why
        any_of_them = claim.replace('subject = "openmpi/tcp"', 'subject = ["mpich/tcp", "openmpi/tcp"]')
        found = judged(tmp_path, any_of_them, curve, noise=0.005)
        assert found.verdict == verdict
        (row,) = found.rows
        assert row.unit == "B" and row.measured == (4096.0,) and row.interval == (4096.0, 8192.0)
        assert row.label.startswith("a step of 3") and row.label.endswith(" µs above"), row.label
        published = 'published = "geromel1998_unet.csv"\ncolumns = ["value"]\n'
        beside = judged(tmp_path, claim + published + 'only = {quantity = "pio_dma_crossover_card_to_host"}', curve)
        assert beside.rows[0].published == (128.0,)
        assert table_of(beside).headings == ("", "published: value", "today, B", "verdict")
    two = {**curve, "mpich/tcp": curve["openmpi/tcp"]}
    labels = [row.label for row in judged(tmp_path, any_of_them, two, noise=0.005).rows]
    assert [label.partition(":")[0] for label in labels] == ["openmpi/tcp", "mpich/tcp"]


def test_a_break_is_that_of_the_selected_curve_and_needs_launches(tmp_path: Path) -> None:
    """Pairs of processes may have a break that one pair does not have."""
    sizes = [2**power for power in range(4, 18)]
    curve = {"openmpi/tcp": {size: 10 + size / 1000 + (30 if size > 4096 else 0) for size in sizes}}
    side = 'step = "messages", subject = "openmpi/tcp"'
    claim = f'[[claim]]\ntext = "x"\nkind = "break"\na = {{{side}}}\nlow = 4096\nhigh = 8192\n'
    few = judged(tmp_path, claim, curve, noise=0.005, launches=5)
    assert few.verdict == "cannot be decided" and "With 5 launches nothing is sure at 95 %" in few.why
    for pairs, verdict in ((1, "held"), (4, "cannot be decided")):
        of_pairs = claim.replace(side, f"{side}, pairs = {pairs}")
        assert judged(tmp_path, of_pairs, curve, noise=0.005).verdict == verdict


def test_a_value_of_few_launches_is_within_nothing(tmp_path: Path) -> None:
    side = 'a = {step = "messages", subject = "openmpi/tcp", message_bytes = 8}'
    claim = f'[[claim]]\ntext = "x"\nkind = "within"\n{side}\nlow = 1\nhigh = 100\n'
    finding = judged(tmp_path, claim, {"openmpi/tcp": {8: 20.0}}, launches=1)
    assert finding.verdict == "cannot be decided" and "there is no interval" in finding.why


@pytest.mark.parametrize(
    ("isolated_ms", "blocks", "busy", "verdict", "says"),
    [
        (20.0, 6, 0.5, "held", "Better in the only row"),
        (60.0, 6, 0.5, "did not hold", "Better in 0 of 1"),
        (20.0, 2, 0.5, "cannot be decided", "Only 2 blocks, and at least 6 are needed."),
        (20.0, 6, 0.9, "cannot be decided", "The machine was saturated"),
    ],
)
def test_strategies_are_judged_by_tests_like_those_of_their_experiment(
    tmp_path: Path, isolated_ms: float, blocks: int, busy: float, verdict: str, says: str
) -> None:
    """Also where ratios look good: with few blocks, or on a saturated machine, nothing can be said."""
    claim = (
        '[[claim]]\ntext = "x"\nkind = "strategy"\nstep = "messages"\nbetter = "isolated"\nworse = ["stp"]\n'
        'quantity = "random rings"\npublished = "oliveira2018_throughput.csv"\nrows = "hosts"\n'
        'columns = ["isolated", "stp"]\n'
    )
    run, frame, _ = synthetic_sdn({"star": 10.0, "wide": 10.0, "stp": 40.0, "isolated": isolated_ms}, blocks, busy=busy)
    plan = written(tmp_path, STEP.replace(COMMAND, '"sdn", "bench"') + claim)
    with patch.object(claims, "read_run", lambda _: run), patch.object(network_claims, "samples", lambda _: frame):
        (finding,) = judge(plan, tmp_path, record_of(plan))
    assert finding.verdict == verdict and says in finding.why, finding.why
    (row,) = finding.rows
    assert row.published == (67.99, 63.17) and row.published_ratio == pytest.approx(1.0763, abs=1e-4)


def test_a_claim_about_strategies_is_corrected_over_its_own_rows(tmp_path: Path) -> None:
    """A difference that is decided alone, but not in the run's own report, among all pairs of its strategies."""
    ms = {"star": 10.0, "wide": 10.0, "stp": 40.0, "isolated": 38.0} | dict.fromkeys(
        ("ecmp", "lanes", "dmodk", "spray"), 40.0
    )
    run, frame, _ = synthetic_sdn(ms, 6)
    spread = pl.Series(np.random.default_rng(3).normal(1, 0.06, frame.height))
    frame = frame.with_columns((pl.col("value") * spread).alias("value"))
    claim = (
        '[[claim]]\ntext = "x"\nkind = "strategy"\nstep = "messages"\nbetter = "isolated"\nworse = ["stp"]\n'
        'quantity = "random rings"\n'
    )
    plan = written(tmp_path, STEP.replace(COMMAND, '"sdn", "bench"') + claim)
    with patch.object(claims, "read_run", lambda _: run), patch.object(network_claims, "samples", lambda _: frame):
        (finding,) = judge(plan, tmp_path, record_of(plan))
    summary = summarised(run, frame)
    ratio = summary.ratio("random rings", 4, "isolated", "stp")
    assert ratio is not None and ratio.p is not None and 0.05 / 15 < ratio.p < 0.05, ratio
    assert str(summary.verdict("random rings", 4, "isolated", "stp")).startswith("cannot say")
    assert finding.verdict == "held" and finding.rows[0].says == "better", finding


@pytest.mark.parametrize(
    ("factor", "blocks", "busy", "verdict", "says"),
    [
        (1.0, 8, 0.5, "held", "No difference beyond 2 % in the only row"),
        (1.3, 8, 0.5, "did not hold", "The sides differ at 4 hosts, against isolated"),
        (1.0, 3, 0.5, "cannot be decided", "Not tested, because only 3 blocks, and at least 6 are needed: "),
        (1.3, 8, 0.9, "cannot be decided", "Not tested, because the machine was saturated in 16 of 16 launches: "),
    ],
)
def test_strategies_are_alike_if_their_intervals_say_so(
    tmp_path: Path, factor: float, blocks: int, busy: float, verdict: str, says: str
) -> None:
    """Latencies of 8 bytes that are part of each launch of rings; published ones are equal, so their ratio is 1."""
    run, frame, _ = synthetic_sdn({"star": 10.0, "wide": 10.0, "stp": 40.0, "isolated": 20.0}, blocks, busy=busy)
    is_short = (pl.col("message_bytes") == 8) & (pl.col("subject").cast(pl.String) == "isolated")
    noise = pl.Series(np.random.default_rng(1).normal(1, 0.001, frame.height))
    value = pl.when(is_short).then(pl.col("value") * factor).otherwise(pl.col("value")) * noise
    frame = frame.with_columns(value.alias("value"))
    plan = written(tmp_path, STEP.replace(COMMAND, '"sdn", "bench"') + LATENCY)
    with patch.object(claims, "read_run", lambda _: run), patch.object(network_claims, "samples", lambda _: frame):
        (finding,) = judge(plan, tmp_path, record_of(plan))
    assert finding.verdict == verdict and says in finding.why, finding.why
    (row,) = finding.rows
    assert row.published == (0.37, 0.37) and row.published_ratio == 1
    table = table_of(finding)
    assert table.headings[1:3] == ("published: stp", "published: isolated")
    assert len(table.rows[0]) == len(table.headings)
    assert row.unit == "ms" and row.ratio == pytest.approx(factor, abs=0.02), "above 1: stp, the first, is shorter"


SIMULATED = """
[[step]]
name = "simulation"
what = "simulated"
command = ["sdn", "simulate"]

[[claim]]
text = "x"
kind = "strategy"
step = "simulation"
better = "planned"
worse = ["stp"]
quantity = "job"
"""


@pytest.mark.parametrize(
    ("planned_s", "verdict", "says"),
    [([5.0, 5.1, 5.2, 5.0, 5.1, 5.2], "held", "Better in the only row"),
     ([11.0, 11.1, 11.2, 11.0, 11.1, 11.2], "did not hold", "Better in 0 of 1"),
     ([9.0, 11.1, 9.2, 11.0, 9.1, 11.2], "cannot be decided", "The tests do not tell them apart."),
     ([5.0, 5.1], "cannot be decided", "Only 2 seeds, and at least 6 are needed.")],
)  # fmt: skip
def test_simulated_strategies_are_compared_seed_by_seed(
    tmp_path: Path, planned_s: list[float], verdict: str, says: str
) -> None:
    """A claim about a document and one about a run stand side by side: each is judged from its own."""
    plan = written(tmp_path, STEP + SIMULATED)
    same = {"quantity": "job", "unit": "s", "hosts": 16}
    stp = [10.0, 10.2, 10.1, 10.3, 10.0, 10.1][: len(planned_s)]
    series = [
        {**same, "strategy": "stp", "mean": float(np.mean(stp)), "values": stp},
        {**same, "strategy": "planned", "mean": float(np.mean(planned_s)), "values": planned_s},
        {**same, "quantity": "random rings", "unit": "MB/s", "strategy": "planned", "mean": 1.0, "values": [1.0]},
    ]
    (tmp_path / "simulation.json").write_text(json.dumps({"series": series}))
    (finding,) = judge(plan, tmp_path, record_of(plan))
    assert finding.verdict == verdict and finding.why.startswith("Simulated. "), finding.why
    assert says in finding.why, finding.why
    (row,) = finding.rows
    assert row.published_ratio is None
    published = 'published = "oliveira2018_throughput.csv"\nrows = "hosts"\n'
    beside = written(tmp_path, STEP + SIMULATED.replace("planned", "isolated") + published)
    renamed = json.dumps({"series": series}).replace("planned", "isolated")
    (tmp_path / "simulation.json").write_text(renamed)
    (with_published,) = judge(beside, tmp_path, record_of(beside))
    assert with_published.rows[0].published_ratio == pytest.approx(27.31 / 38.07), "of times, in A's favour"
    assert table_of(with_published).headings[-2] == "ratio (above 1 is better)"
    assert "ratio (above 1 is better)" in render_study(beside, [with_published], record_of(beside), [])
    assert row.measured == (pytest.approx(np.mean(planned_s)), pytest.approx(np.mean(stp))) and row.unit == "s"


def test_simulated_strategies_are_corrected_over_the_rows_of_a_claim(tmp_path: Path) -> None:
    """Six seeds that would contradict the claim alone, beside two numbers of hosts without a difference."""
    plan = written(tmp_path, STEP + SIMULATED)
    even = [10.0, 10.2, 9.8, 10.1, 9.9, 10.0]
    worse = [10.8, 10.4, 10.2, 9.9, 10.3, 10.5]
    series = [
        {"quantity": "job", "unit": "s", "hosts": hosts, "strategy": name, "mean": float(np.mean(values))}
        | {"values": values}
        for hosts in (4, 8, 16)
        for name, values in (("stp", even), ("planned", worse if hosts == 16 else even[1:] + even[:1]))
    ]
    (tmp_path / "simulation.json").write_text(json.dumps({"series": series}))
    (finding,) = judge(plan, tmp_path, record_of(plan))
    assert finding.verdict == "cannot be decided" and len(finding.rows) == 3, finding.why
    high = finding.rows[2].interval
    assert high is not None and high[1] < 1, "alone it would be worse"


@pytest.mark.parametrize(
    ("right", "wrong", "verdict"),
    [(700, 3, "held"), (600, 100, "did not hold"), (30, 1, "cannot be decided"), (0, 0, "cannot be decided")],
)
def test_recognition_is_judged_by_an_exact_interval_of_the_share(
    tmp_path: Path, right: int, wrong: int, verdict: str
) -> None:
    claim = '[[claim]]\ntext = "x"\nkind = "recognised"\nstep = "messages"\nlow = 0.95\n'
    plan = written(tmp_path, STEP.replace(COMMAND, '"sdn", "learn", "--evaluate", "model.json"') + claim)
    confusion = {"hadoop": {"default": wrong, "hadoop": right, "mpi": 0, "unsure": 0}}
    (tmp_path / "messages.json").write_text(json.dumps({"confusion": confusion}))
    (finding,) = judge(plan, tmp_path, record_of(plan))
    assert finding.verdict == verdict, finding.why
    if right:
        (row,) = finding.rows
        assert row.interval is not None and row.interval[0] < right / (right + wrong) <= row.interval[1]
        assert f"hadoop, {right} of {right + wrong}" in markdown(plan, [finding], record_of(plan), [])


@pytest.mark.parametrize(
    ("kind", "step", "isolated", "verdict"),
    [
        ("strategy", "messages", 20.0, "cannot be decided"),
        ("strategy", "messages", 60.0, "did not hold"),
        ("strategy", "simulation", 20.0, "cannot be decided"),
        ("strategy", "simulation", 60.0, "did not hold"),
        ("alike", "messages", 40.0, "cannot be decided"),
        ("alike", "messages", 20.0, "did not hold"),
    ],
)
def test_a_claim_about_strategies_that_were_not_measured_does_not_hold(
    tmp_path: Path, kind: str, step: str, isolated: float, verdict: str
) -> None:
    """But what was measured can contradict it."""
    names = 'better = "isolated"\nworse = ["stp", "ecmp", "trafic"]'
    if kind == "alike":
        names = 'strategies = ["isolated", "stp", "ecmp", "trafic"]'
    claim = f'[[claim]]\ntext = "x"\nkind = "{kind}"\nstep = "{step}"\nquantity = "random rings"\n{names}\n'
    steps = STEP.replace(COMMAND, '"sdn", "bench"') + SIMULATED[: SIMULATED.index("[[claim]]")]
    plan = written(tmp_path, steps + claim)
    same = {"quantity": "random rings", "unit": "MB/s", "hosts": 4}
    series = [
        {**same, "strategy": name, "mean": 1 / time, "values": [1 / time] * 6}
        for name, time in (("stp", 40.0), ("isolated", isolated))
    ]
    (tmp_path / "simulation.json").write_text(json.dumps({"series": series}))
    run, frame, _ = synthetic_sdn({"star": 10.0, "wide": 10.0, "stp": 40.0, "isolated": isolated}, 6)
    with patch.object(claims, "read_run", lambda _: run), patch.object(network_claims, "samples", lambda _: frame):
        (finding,) = judge(plan, tmp_path, record_of(plan))
    assert finding.verdict == verdict and finding.why.endswith(" Not measured: ecmp, trafic."), finding.why
    assert len(finding.rows) == 1


@pytest.mark.parametrize(
    ("sizes", "verdict", "says"),
    [
        ((64, 1024, 4096, 8192), "held", "copied is cheaper up to"),
        ((64, 1024), "did not hold", "at all sizes up to 1 KiB"),
        ((), "cannot be decided", "has no copy crossover"),
    ],
)
def test_a_crossover_lies_between_the_sizes_or_not(
    tmp_path: Path, sizes: tuple[int, ...], verdict: str, says: str
) -> None:
    plan = written(tmp_path, HOST_STEP + CROSSOVER)
    run, frame = synthetic_host(tmp_path)
    frame = frame.filter((pl.col("test") == "send") & pl.col("message_bytes").is_in(sizes))
    with patch.object(claims, "read_run", lambda _: run), patch.object(claims, "samples", lambda _: frame):
        (finding,) = judge(plan, tmp_path, record_of(plan))
    assert finding.verdict == verdict and says in finding.why, finding
    if verdict == "held":
        with patch.object(claims, "read_run", lambda _: run), patch.object(claims, "samples", lambda _: frame):
            (sure,) = judge(replace(plan, confidence=0.5), tmp_path, record_of(plan))
        assert "; 95 % interval" in finding.why and "; 50 % interval" in sure.why
        (low, high), (inner_low, inner_high) = finding.rows[0].interval, sure.rows[0].interval
        assert low < inner_low < inner_high < high
    if finding.rows:
        assert finding.rows[0].label == "copied or gathered, published 410 to 800 B"


def test_the_impossible_round_trip_is_pointed_out() -> None:
    plan = read_plan("paz2010")
    record = Record("paz2010", plan.digest, "quick", None, "2026-01-01", {})
    findings = judge(plan, Path("none"), record)
    (finding,) = (each for each in findings if each.claim.kind == "impossible")
    assert finding.verdict == "did not hold" and "cannot be" in finding.why
    (row,) = finding.rows
    assert row.says == "impossible" and row.published == (5.5,) and row.measured[0] == pytest.approx(11.46, abs=0.1)
    assert all(other.verdict == "cannot be decided" for other in findings if other is not finding)


@pytest.mark.parametrize(
    ("table", "column", "only", "verdict", "one_way_us"),
    [
        ("watter2006_netpipe_time.csv", "llc_mean_s", "message_bytes = 1", "held", 64.1824),
        ("stival2006_overlap.csv", "value_ms", 'where = "figures 4.32 and 4.34a"', "did not hold", 0.0),
        ("stival2006_fft_phase1.csv", "compute_ms", 'variant = "nonblocking"', "cannot be decided", None),
    ],
)
def test_a_printed_time_is_held_against_the_wire_in_its_own_unit(
    tmp_path: Path, table: str, column: str, only: str, verdict: str, one_way_us: float | None
) -> None:
    """64 µs are printed as 6.4e-05 s. No number says nothing."""
    claim = NOTHING.replace("1400\n", "1\n").replace("1e9", "1e8").replace("paz2010_pingpong.csv", table)
    plan = written(tmp_path, STEP + claim.replace("round_trip_us", column) + f"only = {{{only}}}\n")
    (finding,) = judge(plan, tmp_path, record_of(plan))
    assert finding.verdict == verdict, finding.why
    if one_way_us is None:
        assert not finding.rows and "has no number in compute_ms" in finding.why
        return
    (row,) = finding.rows
    assert row.published == (pytest.approx(one_way_us),)
    assert "published: one way, as it was printed" in table_of(finding).headings


def test_bytes_of_an_account_are_compared_with_the_published(tmp_path: Path) -> None:
    plan, study = read_plan("paz2010"), tmp_path
    record = Record(plan.name, plan.digest, "quick", None, "now", {"account": Done("done", ("account",), 1.0)})
    for mpi, verdict in [(22, "held"), (24, "did not hold")]:
        layers = {"mpi": mpi, "tcp": 32, "ip": 20, "payload": 1426}
        (study / "account.json").write_text(json.dumps({"typical_frames": [{"layers_bytes": layers}]}))
        assert judge(plan, study, record)[-1].verdict == verdict
    (study / "account.json").write_text(json.dumps({"typical_frames": []}))
    assert judge(plan, study, record)[-1].verdict == "cannot be decided"
    for text in ("{", "[]", "3"):
        (study / "account.json").write_text(text)
        with pytest.raises(WrongUse, match="damaged"):
            judge(plan, study, record)


def test_rows_of_several_variants_or_subjects_say_which(tmp_path: Path) -> None:
    sides = CLAIM.replace('kind = "faster"', 'kind = "faster"\nkey = ["ranks"]')
    several = sides.replace('subject = "openmpi/tcp"', 'subject = ["openmpi/tcp", "mpich-5/tcp"]')

    def on_eight_ranks(subject: str, variant: str, time: float) -> Series:
        return replace(series_of([time] * 10, subject=subject), ranks=8, variant=variant)

    more = [
        on_eight_ranks("openmpi/barewire", "original", 10.0),
        on_eight_ranks("openmpi/tcp", "original", 20.0),
        on_eight_ranks("mpich-5/tcp", "original", 30.0),
    ]
    rows = judged(tmp_path, several, {}, more=more).rows
    assert [row.label for row in rows] == ["ranks 8, against openmpi/tcp", "ranks 8, against mpich-5/tcp"]
    more.append(on_eight_ranks("openmpi/barewire", "non-blocking", 9.0))
    rows = judged(tmp_path, several, {}, more=more).rows
    assert [row.label for row in rows] == [
        f"ranks 8, {variant}, against {subject}"
        for variant in ("original", "non-blocking")
        for subject in ("openmpi/tcp", "mpich-5/tcp")
    ]
    assert [row.label for row in judged(tmp_path, sides, {}, more=more[:2]).rows] == ["ranks 8"]
    side = 'a = {step = "messages", subject = "openmpi/barewire"}'
    within = f'[[claim]]\ntext = "x"\nkind = "within"\n{side}\nlow = 5\nhigh = 15\n'
    labels = [row.label for row in judged(tmp_path, within, {}, more=more).rows]
    assert labels == ["64 B, original", "64 B, non-blocking"]
