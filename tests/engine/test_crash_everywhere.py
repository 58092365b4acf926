"""A crash between any two steps of the whole walk: from the first scan over loads, folds, recomputations, a correction, a
late file, merging and expiry to the end of the process. After a restart every row is there exactly once."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.engine.crashing import (
    DELIVERIES,
    Crash,
    Delivery,
    Image,
    Images,
    Site,
    check,
    check_files,
    make_site,
    stats,
)


@dataclass
class Walk:
    """One walk without a crash, with the disk as it was at every point of it."""

    site: Site
    images: Images
    points: int
    edges: Mapping[str, int | None]


@pytest.fixture(scope="module")
def walk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Walk]:
    with _place(tmp_path_factory) as place, pytest.MonkeyPatch.context() as patch:
        site = make_site(place, patch)
        images = Images(place / "images", site)

        def delivered(number: int) -> None:
            images.delivered = number + 1

        with site.point.watched(images.take):
            site.work(each=delivered)
            points = site.point.count
        yield Walk(site, images, points, check(site))


@contextmanager
def _place(factory: pytest.TempPathFactory) -> Iterator[Path]:
    """In memory where that is possible: thousands of small files are made and removed."""
    memory = Path("/dev/shm")
    if not memory.is_dir() or shutil.disk_usage(memory).free < 4 << 30:
        yield factory.mktemp("crashes")
        return
    with TemporaryDirectory(dir=memory) as folder:
        yield Path(folder)


@contextmanager
def told(image: Image, more: str = "") -> Iterator[None]:
    try:
        yield
    except Exception as error:
        raise AssertionError(f"after a crash at {', '.join(image.points[:3])} {more}") from error


def merged(deliveries: tuple[Delivery, ...]) -> Delivery:
    return {name: content for files in deliveries for name, content in files.items()}


@pytest.mark.parametrize("step", [pytest.param(1, marks=pytest.mark.soak), 4])
def test_a_crash_at_every_point(walk: Walk, step: int) -> None:
    """Every point in `make soak`; here every fourth, and every fourth state of the database is worked on from to the end."""
    site = walk.site
    assert walk.points > 1000
    groups = walk.images.by_database()
    assert len(groups) > 50
    for number, group in enumerate(groups):
        for image in group[number % step : -1 : step]:
            with told(image):
                site.replace_by(image.folder)
                with site.running():
                    pass
                check_files(site)
        # What is not published is swept, so from here on all of the group are the same.
        if number % step:
            continue
        image = group[-1]
        rest = merged(DELIVERIES[image.delivered :])
        with told(image):
            site.replace_by(image.folder)
            if number // step % 2:  # the feeds go on while nobody is there
                site.deliver(rest)
                site.work([])
            else:
                site.work([rest])
            assert check(site) == walk.edges


def test_a_crash_during_the_restart_after_a_crash(walk: Walk, tmp_path: Path) -> None:
    site, chance = walk.site, random.Random(20110501)
    for image in chance.sample(walk.images.taken, 12):
        rest = merged(DELIVERIES[image.delivered :])
        site.replace_by(image.folder)
        again = chance.randrange(1, 250)
        with told(image, f"and at point {again} after that"):
            taken = crash_at(site, again, tmp_path / "second", rest)
            site.replace_by(taken)
            shutil.rmtree(taken)
            site.work([rest])
            assert check(site) == walk.edges


def crash_at(site: Site, point: int, image: Path, *deliveries: Delivery) -> Path:
    """Run on, and give the disk as it was at that point (or at the end, if the end comes first)."""

    def watch(number: int, _name: str) -> None:
        if number == point:
            shutil.copytree(site.folder, image)
            raise Crash

    try:
        with site.point.watched(watch):
            site.work(deliveries)
        shutil.copytree(site.folder, image)
    except Crash:
        pass
    return image


def test_an_interrupted_process_tidies_up_and_the_next_one_goes_on(walk: Walk) -> None:
    """Not killed: an exception passes through, and all that is meant to tidy up does so, on the same disk."""
    site, chance = walk.site, random.Random(3)
    first = walk.images.taken[0].folder
    for point in sorted(chance.sample(range(200, walk.points), 6)):
        site.replace_by(first)

        def watch(number: int, _name: str, point: int = point) -> None:
            if number == point:
                raise Crash

        with pytest.raises(Crash), site.point.watched(watch):
            site.work()
        site.work([merged(DELIVERIES)])
        assert check(site) == walk.edges, f"interrupted at point {point}"


CHANGES: Mapping[str, Delivery] = {
    "late": {"stats/s0-late.csv": stats(("a", "01T19:15", 3), ("d", "01T22:16", 5))},
    "again": DELIVERIES[0],
    "rewritten, same size": {"stats/s1.csv": stats(("a", "01T22:05", 20), ("b", "01T22:25", 9), ("a", "01T22:50", 5))},
    "rewritten, other hours": {"stats/s1.csv": stats(("a", "01T21:05", 10), ("b", "01T23:25", 7))},
    "rewritten, fewer rows": {"stats/s3.csv": stats(("b", "02T00:10", 5))},
}


@pytest.mark.parametrize("change", CHANGES)
def test_files_that_come_while_nobody_is_there(walk: Walk, change: str) -> None:
    site, chance = walk.site, random.Random(change)
    for image in chance.sample(walk.images.taken, 3):
        with told(image, change):
            site.replace_by(image.folder)
            site.deliver(CHANGES[change])
            site.work([merged(DELIVERIES[image.delivered :])])
            check(site)
            site.deliver(CHANGES[change])
            site.work([])
            check(site)
