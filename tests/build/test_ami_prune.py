"""What `ami.prune` takes and leaves, for every account there can be."""

from __future__ import annotations

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from paddock.build.ami.images import MachineImage, Snapshot
from paddock.build.ami.prune import decide

FLEET = "paddock-dev"
SNAPSHOTS = [f"snap-{n}" for n in range(6)]
IDS = [f"ami-{n}" for n in range(8)]


@st.composite
def machine_images(draw: st.DrawFn) -> list[MachineImage]:
    """Images of few snapshots and days, so that they share both."""
    return [
        MachineImage(
            id=id,
            name=id,
            state=draw(st.sampled_from(["available", "available", "pending", "failed", "disabled"])),
            reason="",
            created=datetime(2026, 8, draw(st.integers(1, 4)), tzinfo=UTC),
            arch="x86_64",
            root_gib=60,
            snapshots=dict.fromkeys(draw(st.lists(st.sampled_from(SNAPSHOTS), max_size=2, unique=True)), 60),
            protected=draw(st.booleans()),
            tags={"paddock:fleet": draw(st.sampled_from([FLEET, FLEET, "another"]))},
        )
        for id in draw(st.lists(st.sampled_from(IDS), unique=True))
    ]


few = st.lists(st.sampled_from(IDS), max_size=3, unique=True)


@given(machine_images(), few, few, few, st.integers(0, 3), st.booleans())
def test_only_what_nobody_needs_goes(
    images: list[MachineImage], used: list[str], shared: list[str], named: list[str], keep: int, by_name: bool
) -> None:
    left = [Snapshot(id, f"ami-{n}", 60) for n, id in enumerate(SNAPSHOTS)]
    names = named if by_name else []
    removal = decide(FLEET, images, left, dict.fromkeys(used, ("x",)), dict.fromkeys(shared, ("y",)), keep, names)

    own = [image for image in images if image.tags["paddock:fleet"] == FLEET]
    going, staying = removal.images, [image for image in images if image not in removal.images]
    assert sorted(image.id for image in (*going, *(each.image for each in removal.kept))) == sorted(i.id for i in own)
    for image in going:
        assert image in own
        assert image.id not in used
        assert image.state != "pending"
        assert not image.protected
        assert image.id in names if names else image.id not in shared
    if not names:
        newest = sorted((i for i in own if i.state == "available"), key=lambda i: (i.created, i.id), reverse=True)[
            :keep
        ]
        assert not any(image in newest for image in going)
        assert all(image in going or image in newest or _needed(image, used, shared) for image in own)

    needed = {id for image in staying for id in image.snapshots}
    deleted = {id for image in going for id in removal.goes_with(image)} | {each.id for each in removal.snapshots}
    assert not deleted & needed
    there = {image.id for image in images}
    assert all(each.image not in there for each in removal.snapshots)
    assert removal.gib == 60 * len(deleted)


def _needed(image: MachineImage, used: list[str], shared: list[str]) -> bool:
    return image.id in used or image.id in shared or image.protected or image.state == "pending"
