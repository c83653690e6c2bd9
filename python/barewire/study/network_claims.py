# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Claims about networks: strategies measured and simulated, and the recognition of their traffic."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from barewire.report.words import bounds
from barewire.results.quantities import TIME_UNITS
from barewire.results.run import Run
from barewire.results.sdn import NOT_TOLD_APART, Summary, summarised
from barewire.results.store import samples
from barewire.sdn.classify.learn import correct
from barewire.stats.confidence import launches_for_interval
from barewire.stats.paired import Ratio, compare_ratios, paired_ratio
from barewire.study.findings import MARGIN, Finding, Row, Verdict, faster, incomplete, published_ratio, told_apart
from barewire.study.plan import Claim
from barewire.study.steps import document_of


def judge_strategy(claim: Claim, directory: Path, runs: Mapping[str, Run]) -> Finding:
    """Judge whether a strategy is better than the others with every number of hosts."""
    assert claim.step is not None and claim.better is not None
    summary = summarised(runs[claim.step], samples(directory / claim.step))
    rows = _strategy_rows(claim, summary, claim.better, claim.worse)
    if not rows:
        return Finding(claim, "cannot be decided", "the run has no values of both strategies")
    verdict, why = faster(rows)
    return _with_all(Finding(claim, verdict, why, rows, (claim.better, ", ".join(claim.worse))), claim.worse)


def judge_alike(claim: Claim, directory: Path, runs: Mapping[str, Run]) -> Finding:
    """Judge whether each strategy gives what the first one gives."""
    assert claim.step is not None
    summary = summarised(runs[claim.step], samples(directory / claim.step))
    first, *others = claim.strategies
    rows = _strategy_rows(claim, summary, first, others)
    if not rows:
        return Finding(claim, "cannot be decided", "the run has no values of two of the strategies")
    differing = [row.label for row in rows if row.says in ("better", "worse")]
    verdict, why = told_apart(rows, differing)
    return _with_all(Finding(claim, verdict, why, rows, (first, ", ".join(others))), others)


def judge_simulated(claim: Claim, directory: Path, confidence: float) -> Finding:
    """Judge the same of a simulation: by the geometric mean of the ratios of equal seeds, with its interval."""
    assert claim.step is not None and claim.better is not None
    series = {
        (each["hosts"], each["strategy"]): each
        for each in document_of(directory, claim.step)["series"]
        if each["quantity"] == claim.quantity
    }
    rows, ratios = [], []
    for (hosts, name), one in series.items():
        for other_name in claim.worse if name == claim.better else ():
            other = series.get((hosts, other_name))
            if other is None:
                continue
            is_time = one["unit"] in TIME_UNITS
            pair = (other["values"], one["values"]) if is_time else (one["values"], other["values"])
            ratio = paired_ratio(*pair, confidence=confidence)
            published = _published_of(claim, hosts, (name, other_name))
            ratios.append(ratio)
            rows.append(
                Row(
                    f"{hosts} hosts, against {other_name}",
                    float(hosts),
                    published,
                    (one["mean"], other["mean"]),
                    one["unit"],
                    published_ratio(published[::-1] if is_time else published),
                    ratio.value,
                    ratio.interval,
                    "",
                )
            )
    if not rows:
        return Finding(claim, "cannot be decided", "the simulation has no values of both strategies")
    rows = [replace(row, says=says) for row, says in zip(rows, _seeds_say(ratios, confidence), strict=True)]
    verdict, why = faster(rows)
    names = (claim.better, ", ".join(claim.worse))
    return _with_all(Finding(claim, verdict, f"Simulated. {why}", tuple(rows), names), claim.worse)


def judge_recognised(claim: Claim, directory: Path, confidence: float) -> Finding:
    """Judge whether at least a share `low` of each profile's conversations was classified right (Clopper, Pearson)."""
    from scipy.stats import binomtest  # imported late, as in `barewire.stats.intervals`

    assert claim.step is not None and claim.low is not None
    rows = []
    for profile, said in document_of(directory, claim.step)["confusion"].items():
        right, total = correct(profile, said), sum(said.values())
        if not total:
            continue
        found = binomtest(right, total).proportion_ci(confidence, "exact")
        says = "enough" if found.low >= claim.low else "too few" if found.high < claim.low else "undecided"
        share = right / total
        label = f"{profile}, {right} of {total}"
        rows.append(Row(label, None, (), (share,), "", None, share, (float(found.low), float(found.high)), says))
    if not rows:
        return Finding(claim, "cannot be decided", "the recordings have no conversations of a known profile")
    states = {row.says for row in rows}
    verdict: Verdict = (
        "held" if states == {"enough"} else "did not hold" if "too few" in states else "cannot be decided"
    )
    why = f"Right: {', '.join(f'{row.label} {bounds(row.interval)}' for row in rows)}; at least {claim.low:g} expected."
    return Finding(claim, verdict, why, tuple(rows), ("share recognised",))


def _with_all(finding: Finding, others: Sequence[str]) -> Finding:
    """Say which of the strategies no row compares with: a claim about all of them cannot hold then."""
    missing = [name for name in others if not any(row.label.endswith(f" against {name}") for row in finding.rows)]
    return incomplete(finding, f"Not measured: {', '.join(missing)}.") if missing else finding


def _strategy_rows(claim: Claim, summary: Summary, one: str, others: Sequence[str]) -> tuple[Row, ...]:
    """One strategy against each other one with every number of hosts; ratios above 1 are in its favour."""
    assert claim.quantity is not None
    # The run's own report corrects over all its pairs of strategies, a claim over its own rows.
    summary = summary.of_pairs(claim.quantity, [(one, other) for other in others], beside=claim.beside)
    rows = []
    for hosts in dict.fromkeys(cell.place.hosts for cell in summary.cells):
        for other in others:
            cells = [summary.cell(claim.quantity, hosts, name, beside=claim.beside) for name in (one, other)]
            ratio = summary.ratio(claim.quantity, hosts, one, other, beside=claim.beside)
            if ratio is None or cells[0] is None or cells[1] is None:
                continue
            published = _published_of(claim, hosts, (one, other))
            says = summary.verdict(claim.quantity, hosts, one, other, beside=claim.beside) or "undecided"
            row = Row(
                f"{hosts} hosts, against {other}",
                float(hosts),
                published,
                (cells[0].median, cells[1].median),
                cells[0].unit,
                published_ratio(published[::-1] if cells[0].lower_is_better else published),
                ratio.value,
                ratio.interval,
                says,
            )
            rows.append(row)
    return tuple(rows)


def _seeds_say(ratios: Sequence[Ratio], confidence: float) -> Iterator[str]:
    """Yield what the ratios of equal seeds say of a strategy, corrected over all of them, or why they say nothing."""
    words = {"above": "better", "below": "worse", "undecided": f"cannot say: {NOT_TOLD_APART}"}
    known = [ratio for ratio in ratios if ratio.interval is not None]
    outcomes = iter(compare_ratios(known, margin=MARGIN, confidence=confidence))
    needed = launches_for_interval(confidence)
    for ratio in ratios:
        if ratio.interval is None:
            yield f"cannot say: only {ratio.pairs} seeds, and at least {needed} are needed"
        else:
            outcome = next(outcomes)
            yield words.get(outcome, outcome)


def _published_of(claim: Claim, hosts: int, names: Sequence[str]) -> tuple[float | None, ...]:
    table = claim.table
    if table is None or claim.rows is None:
        return ()
    columns = [name if name in table.columns else name.removesuffix("-published") for name in names]
    return tuple(table.value(name, claim.rows, hosts) if name in table.columns else None for name in columns)
