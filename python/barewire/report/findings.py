# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What a reader must know first: the result in a sentence, and what is wrong with it."""

from collections.abc import Callable, Sequence

from barewire.models.naming import is_floor, read_mpi_subject
from barewire.report.versus import Versus
from barewire.report.words import message_size, number, quantity, row_name, subject_name, title_of
from barewire.results import Run, Series, Shared
from barewire.results.quantities import is_detail, is_kernel
from barewire.results.series import subject_order
from barewire.stats import LAUNCHES_FOR_INTERVAL

_LATENCY_BYTES = 64  # where a frame is still as short as it can be, and programs send most
_LISTED_MAX = 6


def headlines(run: Run, comparisons: Sequence[Versus]) -> list[str]:
    """One sentence per test that has a result to tell; empty when there is none."""
    sentences = []
    for test, sentence in (("pingpong", _latency_sentence), ("stream", _rate_sentence)):
        series = _plainest(
            [
                one
                for one in run.series
                if one.test == test and one.pairs == one.processes == 1 and one.median is not None
            ]
        )
        contestants = [one for one in series if not is_floor(one.subject)]
        if not contestants:
            continue
        subject = _told_about({one.subject for one in contestants}, comparisons)
        points = [one for one in contestants if one.subject == subject and one.message_bytes]
        if points:
            sentences.append(sentence(points, comparisons))
    sentences += _of_ranks(run, comparisons)
    return sentences + [sentence for sentence in map(_sharing_sentence, _most_told(run)) if sentence]


def _of_ranks(run: Run, comparisons: Sequence[Versus]) -> list[str]:
    """One sentence for each further test of MPI libraries, of the most ranks and what explains no other quantity."""
    main = [one for one in run.series if one.ranks and one.median is not None and not is_detail(one.test, one.quantity)]
    sentences = []
    for test, told in dict.fromkeys((one.test, one.quantity) for one in main):
        if test in ("pingpong", "stream"):
            continue
        of_test = [one for one in main if (one.test, one.quantity) == (test, told)]
        most = max(one.ranks for one in of_test)
        subject = _told_about({one.subject for one in of_test}, comparisons)
        points = [one for one in of_test if one.ranks == most and one.subject == subject]
        if points:
            # Of a kernel the best variant: which that is, is the question.
            one = min(points, key=_median if is_kernel(test) else _distance)
            what, value = f"{title_of(one.place)}: {_subject(one)}", quantity(one.median, one.unit)
            sentences.append(f"{what} {value} ({row_name(one.row, one.place)}){_beside(one, comparisons)}.")
    return sentences


def _median(one: Series) -> float:
    return one.median or 0.0


def _distance(one: Series) -> float:
    """From the size that is told of."""
    return abs(one.message_bytes - _LATENCY_BYTES)


def _plainest(series: list[Series]) -> list[Series]:
    """Those of the fewest ranks and of the variant that was measured first: what a reader expects of a test's name."""
    if not series:
        return []
    ranks, variant = min(one.ranks for one in series), series[0].variant
    return [one for one in series if one.ranks == ranks and one.variant == variant]


def _most_told(run: Run) -> list[Shared]:
    """Of each subject's streams of the longest messages, the one of the most processes."""
    rates = [one for one in run.shared if one.test == "stream" and one.processes > 1 and one.median is not None]
    found: dict[str, Shared] = {}
    for one in sorted(rates, key=lambda one: (one.message_bytes, one.processes)):
        found[one.subject] = one
    return list(found.values())


def _sharing_sentence(one: Shared) -> str:
    if one.smallest_share is None or one.largest_share is None or one.ratio_to_one is None:
        return ""
    name = subject_name(one.subject)
    return (
        f"{one.processes} processes over {name} carry {quantity(one.median, one.unit)} in total, "
        f"{number(one.ratio_to_one)}\u00a0× one process; their shares are {one.smallest_share:.0%} to "
        f"{one.largest_share:.0%} of the mean."
    )


def warnings(run: Run) -> list[str]:
    """Everything that limits what the numbers mean, the worst first."""
    found = []
    if not run.complete:
        found.append(
            f"This run is incomplete: stopped by {run.stopped_by or 'an unknown cause'}. What was measured is kept."
        )
    found += [
        f"Launch {one.index} ({one.subject}, {one.test}) failed: {one.error}" for one in run.launches if one.error
    ]
    found += _impossible(run)
    found += _listed(run, "Faster than the floor of plain frames", lambda one: one.verdict == "faster than floor")
    lossy = [one for one in run.series if one.lost]
    if lossy:
        lost, dropped = sum(one.lost for one in lossy), sum(one.lossy_samples for one in lossy)
        where = ", ".join(subject_name(subject) for subject in dict.fromkeys(one.subject for one in lossy))
        found.append(
            f"{lost} messages were lost ({where}). The {dropped} samples with loss are kept in samples.parquet, "
            "but count in no rate."
        )
    found += _listed(run, "No sample without loss, so no rate", lambda one: one.verdict == "no loss-free sample")
    few = [one.launches for one in run.series if 0 < one.launches < LAUNCHES_FOR_INTERVAL]
    if few:
        found.append(
            f"Some series have fewer than {LAUNCHES_FOR_INTERVAL} launches (the least has {min(few)}): too few for a "
            "95 % interval of the median."
        )
    return found + list(run.warnings)


def _latency_sentence(points: Sequence[Series], comparisons: Sequence[Versus]) -> str:
    one = min(points, key=_distance)
    return f"{_subject(one)} takes {quantity(one.median, one.unit)} one way at {_size(one)}{_beside(one, comparisons)}."


def _rate_sentence(points: Sequence[Series], comparisons: Sequence[Versus]) -> str:
    one = max(points, key=lambda point: point.message_bytes)
    carries = f"carries {quantity(one.median, one.unit)} in one direction with messages of {_size(one)}"
    return f"{_subject(one)} {carries}{_beside(one, comparisons)}."


def _beside(one: Series, comparisons: Sequence[Versus]) -> str:
    """The baseline and the limit beside a value."""
    if one.verdict == "impossible":
        return ", which is impossible: better than the limit"
    parts = []
    for versus in comparisons:
        if versus.a == one:
            result, base = versus.result, f"{subject_name(versus.b.subject)}’s {quantity(versus.b.median, one.unit)}"
            bounds = result.ratio_ci95
            sure = f" (95\u00a0% interval {number(bounds[0])} to {number(bounds[1])})" if bounds else ""
            doubt = {"undecided": ", not decided", "no difference": ", no difference"}.get(result.verdict, "")
            parts.append(f"{number(result.ratio)}\u00a0× {base}{sure}{doubt}")
    if one.fraction_of_limit is not None:
        limit = "the machine’s own floor" if one.limit_kind == "floor" else "the wire’s limit"
        factor = 1 / one.fraction_of_limit if one.lower_is_better else one.fraction_of_limit
        parts.append(f"{number(factor)}\u00a0× {limit}")
    return "".join(f"{',' if i == 0 else ' and'} {part}" for i, part in enumerate(parts))


def _subject(one: Series) -> str:
    name = subject_name(one.subject)
    # An MPI library's name is one to type.
    return name if read_mpi_subject(one.subject) else name[:1].upper() + name[1:]


def _size(one: Series) -> str:
    return message_size(one.message_bytes).replace(" ", "\u00a0")


def _told_about(subjects: set[str], comparisons: Sequence[Versus]) -> str:
    """raw, or MPI over barewire, where it was measured, else the last subject compared, else the last there is."""
    compared = {one.a.subject for one in comparisons} & subjects
    ours = {
        subject for subject in compared or subjects if (mpi := read_mpi_subject(subject)) and mpi.fabric == "barewire"
    }
    if ours:
        return min(ours, key=lambda subject: (len(subject), subject))
    return "raw" if "raw" in subjects else max(compared or subjects, key=subject_order)


def _impossible(run: Run) -> list[str]:
    listed = _listed(run, "Impossible, better than the limit", lambda one: one.verdict == "impossible")
    wire = any(one.verdict == "impossible" and one.limit_kind == "wire" for one in run.series)
    if listed and wire and run.lab:
        # A token bucket that is not empty delays nothing: the emulation is wrong there, not physics.
        listed[0] += (
            " The link is emulated: a shaper lets short bursts pass at once, so below its own rate it does not delay "
            "a message as a real wire of that rate would."
        )
    return listed


def _listed(run: Run, what: str, chosen: Callable[[Series], bool]) -> list[str]:
    places = [
        f"{subject_name(one.subject)} {one.test} {message_size(one.message_bytes)}" for one in run.series if chosen(one)
    ]
    if not places:
        return []
    more = f" and {len(places) - _LISTED_MAX} more" if len(places) > _LISTED_MAX else ""
    return [f"{what}: {'; '.join(places[:_LISTED_MAX])}{more}."]
