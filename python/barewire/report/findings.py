# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The key results of a run in sentences, and warnings that qualify them."""

from collections.abc import Callable, Sequence

from barewire.models.naming import is_floor, read_mpi_subject
from barewire.report.versus import Versus
from barewire.report.words import message_size, number, percent, quantity, row_name, subject_name, title_of
from barewire.results.quantities import is_detail, is_kernel
from barewire.results.run import Run, Series, Shared
from barewire.results.series import subject_order
from barewire.stats.confidence import launches_for_interval

_LATENCY_BYTES = 64  # fits a frame of minimum length, and the most frequent size in programs
_LISTED_MAX = 6


def headlines(run: Run, comparisons: Sequence[Versus]) -> list[str]:
    """One sentence per test with a result; may be empty."""
    sentences = []
    for test, sentence in (("pingpong", _latency_sentence), ("stream", _rate_sentence)):
        series = _fewest_ranks_first_variant(
            [s for s in run.series if s.test == test and s.pairs == s.processes == 1 and s.median is not None]
        )
        contestants = [s for s in series if not is_floor(s.subject)]
        if not contestants:
            continue
        subject = headline_subject({s.subject for s in contestants}, comparisons)
        points = [s for s in contestants if s.subject == subject and s.message_bytes]
        if points:
            sentences.append(sentence(points, comparisons))
    sentences += _of_ranks(run, comparisons)
    return sentences + [sentence for sentence in map(_sharing_sentence, _most_concurrent(run)) if sentence]


def _of_ranks(run: Run, comparisons: Sequence[Versus]) -> list[str]:
    """One sentence per further MPI test, for the largest number of ranks and the main quantities."""
    main = [s for s in run.series if s.ranks and s.median is not None and not is_detail(s.test, s.quantity)]
    sentences = []
    for test, quantity_name in dict.fromkeys((s.test, s.quantity) for s in main):
        if test in ("pingpong", "stream"):
            continue
        of_test = [s for s in main if (s.test, s.quantity) == (test, quantity_name)]
        most = max(s.ranks for s in of_test)
        subject = headline_subject({s.subject for s in of_test}, comparisons)
        points = [s for s in of_test if s.ranks == most and s.subject == subject]
        if points:
            # For a kernel the best variant.
            point = min(points, key=_median if is_kernel(test) else _distance)
            what, value = f"{title_of(point.place)}: {_subject(point)}", quantity(point.median, point.unit)
            sentences.append(f"{what} {value} ({row_name(point.row, point.place)}){_beside(point, comparisons)}.")
    return sentences


def _median(series: Series) -> float:
    return series.median or 0.0


def _distance(series: Series) -> float:
    """Distance from the size used in headlines."""
    return abs(series.message_bytes - _LATENCY_BYTES)


def _fewest_ranks_first_variant(series: list[Series]) -> list[Series]:
    """The series with the fewest ranks and the first measured variant."""
    if not series:
        return []
    ranks, variant = min(s.ranks for s in series), series[0].variant
    return [s for s in series if s.ranks == ranks and s.variant == variant]


def _most_concurrent(run: Run) -> list[Shared]:
    """For each subject the stream with the longest messages and the most processes."""
    rates = [
        shared
        for shared in run.shared
        if shared.test == "stream" and shared.processes > 1 and shared.median is not None
    ]
    found: dict[str, Shared] = {}
    for shared in sorted(rates, key=lambda shared: (shared.message_bytes, shared.processes)):
        found[shared.subject] = shared
    return list(found.values())


def _sharing_sentence(shared: Shared) -> str:
    if shared.smallest_share is None or shared.largest_share is None or shared.ratio_to_one is None:
        return ""
    name = subject_name(shared.subject)
    return (
        f"{shared.processes} processes over {name} carry {quantity(shared.median, shared.unit)} in total, "
        f"{number(shared.ratio_to_one)}\u00a0× one process; their shares are {shared.smallest_share:.0%} to "
        f"{shared.largest_share:.0%} of the mean."
    )


def warnings(run: Run) -> list[str]:
    """Everything that limits the validity of the numbers, the worst first."""
    found = []
    if not run.complete:
        found.append(
            f"This run is incomplete: stopped by {run.stopped_by or 'an unknown cause'}. What was measured is kept."
        )
    found += [
        f"Launch {launch.index} ({launch.subject}, {launch.test}) failed: {launch.error}"
        for launch in run.launches
        if launch.error
    ]
    found += _impossible(run)
    found += _listed(run, "Faster than the floor of plain frames", lambda s: s.verdict == "faster than floor")
    lossy = [s for s in run.series if s.lost]
    if lossy:
        lost, dropped = sum(s.lost for s in lossy), sum(s.lossy_samples for s in lossy)
        where = ", ".join(subject_name(subject) for subject in dict.fromkeys(s.subject for s in lossy))
        found.append(
            f"{lost} messages were lost ({where}). The {dropped} samples with loss are kept in samples.parquet, "
            "but not used for rates."
        )
    found += _listed(run, "No sample without loss, so no rate", lambda s: s.verdict == "no loss-free sample")
    needed = launches_for_interval(run.confidence)
    few = [s.launches for s in run.series if 0 < s.launches < needed]
    if few:
        found.append(
            f"Some series have fewer than {needed} launches (the least has {min(few)}): too few for a "
            f"{percent(run.confidence)} interval of the median."
        )
    return found + list(run.warnings)


def _latency_sentence(points: Sequence[Series], comparisons: Sequence[Versus]) -> str:
    point = min(points, key=_distance)
    takes = f"takes {quantity(point.median, point.unit)} one way at {_size(point)}"
    return f"{_subject(point)} {takes}{_beside(point, comparisons)}."


def _rate_sentence(points: Sequence[Series], comparisons: Sequence[Versus]) -> str:
    point = max(points, key=lambda s: s.message_bytes)
    carries = f"carries {quantity(point.median, point.unit)} in one direction with messages of {_size(point)}"
    return f"{_subject(point)} {carries}{_beside(point, comparisons)}."


def _beside(series: Series, comparisons: Sequence[Versus]) -> str:
    """Comparison of a value with the baseline and the limit."""
    if series.verdict == "impossible":
        return ", which is impossible: better than the limit"
    parts = []
    for versus in comparisons:
        if versus.a == series:
            result, base = versus.result, f"{subject_name(versus.b.subject)}’s {quantity(versus.b.median, series.unit)}"
            bounds = result.ratio_interval
            share = percent(result.confidence).replace(" ", "\u00a0")
            sure = f" ({share} interval {number(bounds[0])} to {number(bounds[1])})" if bounds else ""
            doubt = {"undecided": ", not decided", "no difference": ", no difference"}.get(result.verdict, "")
            parts.append(f"{number(result.ratio)}\u00a0× {base}{sure}{doubt}")
    if of_limit := times_limit(series):
        parts.append(of_limit)
    return "".join(f"{',' if i == 0 else ' and'} {part}" for i, part in enumerate(parts))


def times_limit(series: Series) -> str:
    """A value as a multiple of its limit; empty without a limit."""
    if series.fraction_of_limit is None:
        return ""
    limit = "the machine’s own floor" if series.limit_kind == "floor" else "the wire’s limit"
    factor = 1 / series.fraction_of_limit if series.lower_is_better else series.fraction_of_limit
    return f"{number(factor)}\u00a0× {limit}"


def _subject(series: Series) -> str:
    name = subject_name(series.subject)
    # The name of an MPI subject is typed as is, so it is not capitalised.
    return name if read_mpi_subject(series.subject) else name[:1].upper() + name[1:]


def _size(series: Series) -> str:
    return message_size(series.message_bytes).replace(" ", "\u00a0")


def headline_subject(subjects: set[str], comparisons: Sequence[Versus]) -> str:
    """The headline's subject: MPI over Barewire or raw if measured, else the last compared subject, else the last."""
    compared = {versus.a.subject for versus in comparisons} & subjects
    over_barewire = {
        subject for subject in compared or subjects if (mpi := read_mpi_subject(subject)) and mpi.fabric == "barewire"
    }
    if over_barewire:
        return min(over_barewire, key=lambda subject: (len(subject), subject))
    return "raw" if "raw" in subjects else max(compared or subjects, key=subject_order)


def _impossible(run: Run) -> list[str]:
    listed = _listed(run, "Impossible, better than the limit", lambda s: s.verdict == "impossible")
    wire = any(s.verdict == "impossible" and s.limit_kind == "wire" for s in run.series)
    if listed and wire and run.lab:
        means = run.lab.get("wire") or "tbf"  # earlier labs had nothing else
        if means == "tbf":
            listed[0] += (
                " The link is emulated by a token bucket, which lets short bursts pass at once: below its rate it does "
                "not delay a message as a real wire of that rate would."
            )
        else:
            listed[0] += f" The link is emulated ({means}): please report this as a bug."
    return listed


def _listed(run: Run, what: str, chosen: Callable[[Series], bool]) -> list[str]:
    places = [f"{subject_name(s.subject)} {s.test} {message_size(s.message_bytes)}" for s in run.series if chosen(s)]
    if not places:
        return []
    more = f" and {len(places) - _LISTED_MAX} more" if len(places) > _LISTED_MAX else ""
    return [f"{what}: {'; '.join(places[:_LISTED_MAX])}{more}."]
