"""Which of a table's pending work could run now, as the job that a policy sees."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, islice
from math import ceil

from penstock.control.amounts import of_load, of_view, pending_bytes
from penstock.control.state import State
from penstock.model.cost import WORTH_A_START, CostModel
from penstock.model.freshness import out_of_reach
from penstock.model.grain import WHOLE
from penstock.model.partitions import EMPTY, EVERYTHING, PartitionSet
from penstock.model.steps import cuttable, length_us
from penstock.model.tables import Table
from penstock.model.time import BEGIN_US, DAY_US, END_US
from penstock.requests.deferral import Deferral, defer, may_defer
from penstock.requests.in_flight import InFlight, Unsettled, advances, late_pieces, waiting
from penstock.requests.job import FeedFile
from penstock.requests.needs import Piece, partitions_of
from penstock.requests.tablestate import TableState
from penstock.requests.windows import closes_us
from penstock.scheduling.chopping import Cut
from penstock.scheduling.jobs import ReadyJob

# Appended files of a table until merging them is worth a job.
SMALL_FILES = 48
# One job loads at most so many files, and of so many bytes: what comes at once after a long time is cut into several.
MOST_FILES = 5000
MOST_BYTES = 8 << 30
_YEAR_US = 366 * DAY_US
# A change of more old partitions than this weighs no more.
_MANY = 100_000


@dataclass(frozen=True, slots=True)
class Work:
    """The part of a table's pending work that could be done now, oldest first."""

    pieces: tuple[Piece, ...] = ()
    # Pending, but a source has not come far enough, or is too far ahead.
    unreachable: PartitionSet = EMPTY
    # Pending, but an input is itself about to change, because of work of these tables.
    unsettled: PartitionSet = EMPTY
    waits_for: frozenset[str] = frozenset()
    # When that ends, whatever has come; and for which tables it has waited long enough.
    settles_us: int = END_US
    waited_for: frozenset[str] = frozenset()
    # Whether changes further up, of which the table itself learns nothing yet, could make it wait or end its waiting.
    late: bool = False
    # Pending, but worth to wait for a newer change with it.
    deferred: Deferral | None = None
    # Pending, but further changes are collected until then.
    collects_us: int | None = None
    # Up to when a job that takes so many periods of data goes, where that is inside of a partition.
    cut_us: int | None = None


def blocked(state: State, table: TableState) -> str | None:
    """Why nothing of a table may run now, whatever is pending; None if it may."""
    if table.running is not None:
        return "an update of it is running"
    if table.failed:
        return "it failed; `penstock retry` tries again"
    if table.retry_at_us is not None and table.retry_at_us > state.now_us:
        return "it waits before the next try"
    paused = state.paused(table)
    if paused is not None:
        why = f" ({paused.paused_why})" if paused.paused_why else ""
        return f"its feed {table.table.feed} is paused{why}; `penstock resume {table.table.feed}` goes on"
    for other in (table.table.leader, *state.graph.followers.get(table.table.name, ())):
        if other is not None and state.tables[other].running is not None:
            return f"an update of {other} is running, with which it is made"
    if any(running.job.table == table.table.name for running in state.busy.values()):
        return "an update from before it was declared anew is running"
    if table.table.is_base and (closes_us(state, table) or 0) > state.now_us:
        what = "files" if table.files else "requests"
        return f"further {what} may come, with which it is updated once"
    until = state.deferred_until(table)
    if until is not None and until > state.now_us:
        return (
            "it is updated when a query needs it" if until >= END_US else "it is read seldom, so its updates are merged"
        )
    return None


def ready_job(state: State, table: TableState, work: Work | None = None, take: int | None = None) -> ReadyJob | None:
    """All work of a table that could start now; `work` if it is known already. With `take` only the oldest so many
    files, or so many periods of data; of what was only asked for, as many partitions as fit into these, and nothing beside files."""
    if blocked(state, table) is not None:
        return None
    spec = table.table
    name = spec.name
    release = END_US
    if spec.is_base:
        pieces = pieces_to_load(state, table, take)
        if not (table.files or pieces or table.withdrawn or table.anew):
            return _upkeep(table)
        files = files_to_load(state, table, take)
        release = files[0].arrived_us if files else state.now_us
        amount = of_load(table, files, pieces)
        gain = _gain_of_files(state, table, files)
    else:
        work = work or ready_work(state, table, take)
        pieces = work.pieces
        if not pieces:
            return _upkeep(table, to_be_emptied(state, table, work))
        gain = _gain(table, pieces, work.cut_us)
        amount = of_view(state, table, pieces, news_of(table, work))
    late = 0
    late_total = 0
    for piece in pieces:
        release = min(release, piece.need.at_us)
        if piece.need.late:
            count = 1 if spec.anywhere else min(_MANY, spec.grain.count(piece.start_us, piece.end_us))
            late += count
            late_total += count * piece.need.at_us
    deadline = _asked_by(state, pieces)
    cost = state.cost_of(name)
    # A table without time has no edge: what it waits for is all there is to its staleness. And what is to be done by a
    # certain time is worth no less than the edge.
    full = not state.graph.has_time[name] or deadline < END_US
    factor = state.reading.modulation(table).priority_factor if state.updates == "demand" else 1.0
    made = state.graph.made_with(name)
    return ReadyJob(
        table=name,
        priority=sum(state.tables[each].table.priority for each in made) * factor,
        inherited=sum(state.weights[each] for each in made) * factor,
        release_us=release,
        deadline_us=min(deadline, release + state.graph.periods_us[name]),
        gain_us=gain,
        late=late,
        late_since_us=late_total // late if late else 0,
        history_weight=1.0 if full else spec.history_weight,
        amount=amount,
        expected_s=cost.expected_s(amount),
        awaited_us=_awaited_until(state, table, pieces),
        start_up_s=cost.expected_s(0.0),
    )


def news_of(table: TableState, work: Work) -> float:
    """How much of what its sources added some work of a view takes up: in whole bytes, so that nothing is left of all of it."""
    if work.cut_us is not None and table.seen_us is not None and table.edge_us is not None:
        return round(table.amount * (work.cut_us - table.edge_us) / (table.seen_us - table.edge_us))
    made, every = partitions_of(work.pieces), table.needs.domain()
    if made == every:
        return table.amount
    return round(table.amount * min(1.0, made.count(table.table.grain) / every.count(table.table.grain)))


def _asked_by(state: State, pieces: tuple[Piece, ...]) -> int:
    """The earliest deadline of the requests behind some work."""
    found = END_US
    for piece in pieces:
        for number in piece.need.requests:
            request = state.requests.get(number)
            if request is not None and request.deadline_us is not None:
                found = min(found, request.deadline_us)
    return found


def _awaited_first(state: State, table: TableState, pieces: list[Piece]) -> list[Piece]:
    """Of the work that could be done now, that for which queries wait; nothing if they wait for none of it."""
    awaited = state.awaited.partitions(table.table.name)
    return [Piece(*piece) for piece in table.needs.within(awaited & partitions_of(pieces))] if awaited else []


def _awaited_until(state: State, table: TableState, pieces: tuple[Piece, ...]) -> int | None:
    name = table.table.name
    if name not in state.awaited:
        return None
    return state.awaited.until(name, EVERYTHING if table.table.is_base else partitions_of(pieces))


def _upkeep(table: TableState, emptying: bool = False) -> ReadyJob | None:
    if table.small_files < SMALL_FILES and not emptying:
        return None
    return ReadyJob(table.table.name, 0, 0, END_US, END_US, 0, 0, 0, 0, 0, 1.0, upkeep=True)


def to_be_emptied(state: State, table: TableState, work: Work) -> bool:
    """Whether there is nothing that a table which was declared anew could be made from, now or soon: then what it held before
    must go without that."""
    if table.table.external == "lake":
        return False  # its rows are not ours to take away
    names = state.graph.made_with(table.table.name) if state.former and table.anew and not table.table.leader else ()
    if state.former.isdisjoint(names) or work.pieces or work.deferred is not None:
        return False
    return not state.more_is_coming(table.table.name)


def files_to_load(state: State, table: TableState, take: int | None = None) -> tuple[FeedFile, ...]:
    """In order of arrival, and not all if that is too much. But where a file got other content, the partitions that it was
    in are made again from all files: without the new content its rows would be missing until that is loaded."""
    assert table.table.feed is not None
    if table.anew:
        return tuple(table.files.values()) if table.anew == "files" else ()
    least = max((n for n, uri in enumerate(table.files, 1) if uri in table.again), default=0) if table.again else 0
    if state.graph.feeds[table.table.feed].mode == "snapshot":
        if table.withdrawn:
            return ()  # first what was said before counts again: then it is seen which of them is the newest
        # Each restates partitions of its own: in order, one by one. Or each restates all: the last one counts.
        most = 1 if table.table.grain is not WHOLE else None if take is None else max(take, least)
        return tuple(islice(table.files.values(), most))
    files = tuple(islice(table.files.values(), max(least, MOST_FILES if take is None else min(take, MOST_FILES))))
    upto = bisect_right(list(accumulate(file.size_bytes for file in files)), MOST_BYTES)
    files = files[: max(least, upto, 1)]
    cut = state.chops.get(table.table.name)
    if cut is None or len(files) < 2:
        return files
    period = state.graph.periods_us[table.table.name]
    chop = _periods(state, table, cut, sum(file.size_bytes for file in files), len(files) * period)
    # Update chopping (Golab et al., Sec. 3.4): what came within so many periods, and as much as is worth a start.
    upto = files[0].arrived_us + (int(chop) - 1) * period
    worth_s = (1 + WORTH_A_START) * table.cost.expected_s(0.0)
    amount = 0.0
    for number, file in enumerate(files):
        if number >= least and file.arrived_us > upto and table.cost.expected_s(amount) >= worth_s:
            return files[:number]
        amount += file.size_bytes
    return files


def pieces_to_load(state: State, table: TableState, take: int | None = None) -> tuple[Piece, ...]:
    """The partitions that a load makes again: all where a file changed, whose rows are in them. What was only asked for is
    cut as the work of a view is, so that a long backfill does not keep new files waiting."""
    if table.anew == "rows":
        return ()  # first of all its rows get into the partitions of now
    pieces = [Piece(*piece) for piece in table.needs.pieces()]
    asked = partitions_of([piece for piece in pieces if not piece.need.changed])
    if not asked or table.table.grain is WHOLE or (most := _most(state, table, take)) is None:
        return tuple(pieces)
    if take is not None and table.files:
        most = 0
    later = asked - asked.first(table.table.grain, most)
    return (
        tuple(Piece(*piece) for piece in table.needs.within(table.needs.domain() - later)) if later else tuple(pieces)
    )


def _gain_of_files(state: State, table: TableState, files: tuple[FeedFile, ...]) -> int:
    """How much fresher a base table gets: its files hold about what happened since the last one that was loaded. One that
    comes besides, as late rows do, adds nothing to that: however many come, all together bring what has happened."""
    if not files:
        return 0
    if table.last_arrival_us is None:
        return len(files) * state.graph.periods_us[table.table.name]
    return max(1, files[-1].arrived_us - table.last_arrival_us)


def _gain(table: TableState, pieces: tuple[Piece, ...], cut_us: int | None) -> int:
    after = complete_after(table, pieces)
    if after is None:
        return 0
    after = after if cut_us is None else min(after, cut_us)
    before = table.edge_us if table.edge_us is not None else max(pieces[0].start_us, after - _YEAR_US)
    return max(0, after - before)


def ready_work(state: State, table: TableState, take: int | None = None, settling: InFlight | None = None) -> Work:
    """Which pending partitions of a derived table can be made now; `settling` if what is on its way is known already."""
    if not table.needs:
        return Work()
    spec = table.table
    reach = EVERYTHING
    if state.graph.has_time[spec.name]:
        edges = state.source_edges(spec.name)
        if edges is None or table.seen_us is None:
            return Work(unreachable=table.needs.domain())
        reach -= out_of_reach(edges, spec.grain, table.seen_us)
    elif not state.sources_exist(spec.name):
        return Work(unreachable=table.needs.domain())
    pieces = [Piece(*piece) for piece in table.needs.within(reach)]
    unreachable = EMPTY if reach is EVERYTHING else table.needs.domain() - reach
    late = any(piece.need.late for piece in pieces)
    unsettled, waits_for, settles_us, waited_for = waiting(state, table, pieces, settling) if late else Unsettled()
    if unsettled:
        pieces = [Piece(*piece) for piece in table.needs.within(reach - unsettled)]
    deferred = defer(state, table, pieces, settling) if late and may_defer(state, spec) else None
    if deferred is not None:
        pieces = [Piece(*piece) for piece in table.needs.within(reach - unsettled - deferred.partitions)]
    collects_us = closes_us(state, table) if late and spec.queue_us else None
    if collects_us is not None and collects_us > state.now_us:
        settles_us = min(settles_us, collects_us)
        hasty = [piece for piece in late_pieces(table, pieces) if advances(table, piece)]
        pieces = sorted([piece for piece in pieces if not piece.need.late] + hasty, key=lambda piece: piece.start_us)
    else:
        collects_us = None
    whole = spec.anywhere or not state.graph.has_time[spec.name]
    if whole and partitions_of(pieces) != table.needs.domain():
        pieces = []  # it is made as a whole, or not at all
    hurried = _awaited_first(state, table, pieces)
    if hurried and take is not None and spec.name in state.kept and any(advances(table, piece) for piece in pieces):
        hurried = []  # a table of which something is promised goes on in steps, whoever waits for it
    cut_us = None
    if spec.name in state.graph.chained and state.graph.has_time[spec.name]:
        # Its own earlier partitions are inputs of the later ones: strictly one after the other.
        oldest = table.needs.domain().first(spec.grain, 1)
        pieces = pieces and [Piece(*piece) for piece in table.needs.within(oldest & partitions_of(pieces))]
    elif hurried and take is None:
        pieces = hurried
    elif take is not None and not hurried and (reach_us := _reach_us(state, table, take)) is not None:
        taken, cut_us = _cut(state, table, pieces, reach_us)
        pieces = taken or [
            Piece(*piece) for piece in table.needs.within(_first(table, pieces, _most(state, table, take)))
        ]
    elif hurried and take is not None:
        pieces = [Piece(*piece) for piece in table.needs.within(_first(table, hurried, _most(state, table, take)))]
    elif take is None and (reach_us := _worth_us(state, table, pieces)) is not None:
        if reach_us < (table.seen_us or reach_us):
            taken, cut_us = _cut(state, table, pieces, reach_us)
            pieces = taken or pieces
    elif not whole and (most := _most(state, table, take)) is not None:
        # What is no more than the periods that it takes is taken, also where that goes from one partition to the next.
        all_there_is = take is not None and table.edge_us is not None and cuttable(state.graph, spec.name)
        at_edge = (spec.chop or _MANY) if all_there_is else most
        pieces = [Piece(*piece) for piece in table.needs.within(_first(table, pieces, most, at_edge))]
    return Work(
        tuple(pieces), unreachable, unsettled, waits_for, settles_us, waited_for, late, deferred, collects_us, cut_us
    )


def _reach_us(state: State, table: TableState, take: int) -> int | None:
    """Up to when a job goes that takes so many periods of data; None if nothing is left beyond that, or it cannot be told."""
    if table.edge_us is None or table.seen_us is None or not cuttable(state.graph, table.table.name):
        return None
    reach = table.edge_us + take * state.graph.periods_us[table.table.name]
    return reach if reach < table.seen_us else None


def _worth_us(state: State, table: TableState, pieces: list[Piece]) -> int | None:
    """Up to when an update goes that the policy cuts, where nothing but new rows is folded in: as many periods of data as it says,
    or as much as is worth a start. None if it can only be cut between partitions."""
    name = table.table.name
    cut = state.chops.get(name)
    if cut is None or table.edge_us is None or table.seen_us is None or table.table.chop is not None:
        return None
    ahead_us = table.seen_us - table.edge_us
    if ahead_us <= 0 or not (cuttable(state.graph, name) and all(piece.need.append for piece in pieces)):
        return None
    cost = state.cost_of(name)
    start_up_s = cost.expected_s(0.0)
    data_s = cost.expected_s(table.amount) - start_up_s
    if data_s <= 0:
        return table.seen_us
    periods = _periods(state, table, cut, table.amount, ahead_us)
    worth_us = WORTH_A_START * start_up_s * ahead_us / data_s
    return table.edge_us + max(int(periods * state.graph.periods_us[name]), round(worth_us))


def _cut(state: State, table: TableState, pieces: list[Piece], reach_us: int) -> tuple[list[Piece], int | None]:
    """The pieces with the rows between the edge and some time, and that time: a backlog is done in steps of the same size,
    however long the partitions are. Where a source cannot be cut there, the last partition is made as a whole."""
    grain = table.table.grain
    every = partitions_of(pieces)
    assert table.edge_us is not None
    # Late rows that are folded in are few: they go along.
    folded = all(piece.need.append for piece in pieces)
    begin = BEGIN_US if grain is WHOLE or folded else grain.floor(table.edge_us)
    end = END_US if grain is WHOLE else grain.shift(grain.floor(reach_us - 1), 1)
    taken = [Piece(*piece) for piece in table.needs.within(every.within(begin, end))]
    edges = state.source_edges(table.table.name)
    if not taken or edges is None or out_of_reach(edges, grain, reach_us) & partitions_of(taken):
        return taken, None
    return taken, reach_us


def _first(table: TableState, pieces: list[Piece], most: int | None, at_edge: int | None = None) -> PartitionSet:
    """The partitions that a job takes which may not take all: those at the edge, so that old ones which are made again
    never hold it up, and then the oldest."""
    most, grain = most or 1, table.table.grain
    every = partitions_of(pieces)
    edge = every if table.edge_us is None else every.within(grain.floor(table.edge_us), END_US)
    taken = edge.first(grain, at_edge or most)
    left = most - taken.count(grain)
    return taken | (every - taken).first(grain, left) if left > 0 else taken


def _most(state: State, table: TableState, take: int | None) -> int | None:
    if table.table.name not in state.chops:
        return most_at_once(state, table, 1, 0.0, take)
    pending = table.needs.domain().count(table.table.grain)
    folded = all(need.append for _, _, need in table.needs.pieces())
    ahead = table.seen_us - table.edge_us if folded and table.seen_us and table.edge_us else 0
    return most_at_once(state, table, pending, pending_bytes(state, table), take, ahead)


def most_at_once(
    state: State, table: TableState, pending: int, amount: float, take: int | None = None, stretch_us: int = 0
) -> int | None:
    """How many of the pending partitions one job may make: as declared; what `take` periods of data fill; what the policy's
    `chop` periods fill, or as many as are worth a start. At least one. The amount is the data of a stretch of time, or of all
    these partitions."""
    spec = table.table
    if spec.grain is WHOLE:
        return spec.chop
    limits = [spec.chop] if spec.chop is not None else []
    if take is not None:
        limits.append(_filled(state, spec, take))
    if (cut := state.chops.get(spec.name)) is not None:
        # The tables of a group share one start.
        parts = max(1, sum(bool(state.tables[name].needs) for name in state.graph.grouped_with(spec.name)))
        worth = _worth_a_start(state.cost_of(spec.name), pending, amount, parts)
        if worth is not None:
            every_us = stretch_us if stretch_us > 0 else pending * length_us(spec)
            limits.append(max(worth, _filled(state, spec, _periods(state, table, cut, amount, every_us))))
    return min(limits, default=None)


def _periods(state: State, table: TableState, cut: Cut, amount: float, stretch_us: int) -> float:
    """How many periods of data one job takes, if an amount is the data of such a stretch of time."""
    name = table.table.name
    cost = state.cost_of(name)
    start_up_s = cost.expected_s(0.0)
    data_s = cost.expected_s(amount) - start_up_s
    return cut.periods(start_up_s, data_s * state.graph.periods_us[name] / stretch_us)


def _filled(state: State, spec: Table, periods: float) -> int:
    return max(1, int(periods * state.graph.periods_us[spec.name]) // length_us(spec))


def _worth_a_start(cost: CostModel, pending: int, amount: float, parts: int) -> int | None:
    """So many of the pending partitions that their data take much longer than a start; None if all do not."""
    start_up_s = cost.expected_s(0.0)
    each_s = (cost.expected_s(amount) - start_up_s) / pending
    needed_s = WORTH_A_START * start_up_s / parts
    return ceil(needed_s / each_s) if each_s * pending > needed_s else None


def complete_after(table: TableState, pieces: tuple[Piece, ...]) -> int | None:
    """Up to which time the table is complete once these pieces are made: as far as the trailing edge was seen, but not
    past a partition that is left for later."""
    if table.seen_us is None:
        return None
    floor = table.edge_us if table.edge_us is not None else BEGIN_US
    for start, end in table.lacks - partitions_of(pieces):
        if end > floor and start < table.seen_us:
            return max(floor, start) if max(floor, start) > BEGIN_US else None
    return table.seen_us


def ready_group(
    state: State, members: Sequence[TableState], settling: InFlight | None = None
) -> tuple[ReadyJob | None, dict[str, Work]]:
    """All work of a group that could start now, as one job by the name of its first table; and the work of
    each. A table that has something pending but none of it ready holds the others back: they become visible
    together, or not at all."""
    works = {table.table.name: Work() for table in members}
    if any(blocked(state, table) is not None for table in members):
        return None, works
    works = {table.table.name: ready_work(state, table, settling=settling) for table in members}
    if any(table.needs and not works[table.table.name].pieces for table in members):
        return None, works
    jobs = [
        job
        for table in members
        if works[table.table.name].pieces and (job := ready_job(state, table, works[table.table.name])) is not None
    ]
    return (_together(members[0], jobs) if jobs else None), works


def _together(first: TableState, jobs: Sequence[ReadyJob]) -> ReadyJob:
    """One job with the benefit of all: what they gain, each by its weight."""
    weight = sum(job.inherited for job in jobs)
    late = sum(job.late for job in jobs)
    amount = sum(job.amount for job in jobs)
    cost = first.cost
    awaited = [job.awaited_us for job in jobs if job.awaited_us is not None]
    return ReadyJob(
        table=first.table.name,
        priority=sum(job.priority for job in jobs),
        inherited=weight,
        release_us=min(job.release_us for job in jobs),
        deadline_us=min(job.deadline_us for job in jobs),
        gain_us=round(sum(job.inherited * job.gain_us for job in jobs) / weight) if weight else 0,
        late=late,
        late_since_us=sum(job.late * job.late_since_us for job in jobs) // late if late else 0,
        history_weight=max(job.history_weight for job in jobs),
        amount=amount,
        expected_s=cost.expected_s(amount),
        awaited_us=min(awaited, default=None),
        start_up_s=cost.expected_s(0.0),
    )


def held_by_group(state: State, table: TableState) -> str | None:
    """The table of the same group that keeps it from running, if any."""
    for name in state.graph.grouped_with(table.table.name):
        other = state.tables[name]
        if other is table:
            continue
        if blocked(state, other) is not None or (other.needs and not ready_work(state, other).pieces):
            return name
    return None
