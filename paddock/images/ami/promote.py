"""Pins a machine image in a stack file, once everything that would use it has been compared with it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import ValidationError

from paddock.aws.client import Aws
from paddock.errors import did_you_mean
from paddock.fleet import Stack
from paddock.fleet.model.pool import Bottlerocket, Custom
from paddock.images import pin as pinning
from paddock.images.ami import fit, images
from paddock.images.ami.fit import Fit
from paddock.images.ami.images import MachineImage
from paddock.images.errors import BuildInputError

_AMI_ID = re.compile(r"ami-[0-9a-f]{8,17}")


@dataclass(frozen=True, slots=True)
class Decision:
    """The comparisons, and the pools that would change."""

    fits: tuple[Fit, ...]
    changing: tuple[str, ...]

    @property
    def refused(self) -> tuple[Fit, ...]:
        return tuple(fit for fit in self.fits if fit.fits is False)


def pools(stack: Stack, requested: Sequence[str]) -> tuple[str, ...]:
    """The pools that an image is for: `requested`, or all that are not Bottlerocket's. Raises BuildInputError."""
    fleet = stack.fleet
    if not fleet.owns_nodes or not fleet.holds("cluster"):
        where = "of a cluster that is there already" if not fleet.owns_nodes else f"held by {fleet.layers.cluster}"
        raise BuildInputError(
            f"stack {stack.name} boots no GPU nodes: they are {where}\n    fix: choose the stack that makes the pools"
        )
    for name in requested:
        if name not in fleet.pools:
            hint = did_you_mean(name, fleet.pools)
            raise BuildInputError(
                f"--pool: stack {stack.name} has no pool {name[:100]!r}\n"
                f"    expected: one of {', '.join(fleet.pools)}\n"
                f"    fix: {hint or 'name one of these, or leave --pool out'}"
            )
    chosen = tuple(dict.fromkeys(requested)) or tuple(
        name for name, pool in fleet.pools.items() if not isinstance(fleet.ami(pool), Bottlerocket)
    )
    if not chosen:
        raise BuildInputError(
            f"every pool of stack {stack.name} boots Bottlerocket\n    fix: name those to change with --pool"
        )
    return chosen


def usable(aws: Aws, stack: Stack, id: str, maker: str) -> tuple[MachineImage, Custom]:
    """The image, and what a pool's `ami` would be. Raises BuildInputError where it is not there, ready and ours."""
    if not _AMI_ID.fullmatch(id):
        raise BuildInputError(
            f"{id[:100]!r} is not an image ID\n    expected: ami- and 8 to 17 digits of 0-9 and a-f\n"
            f"    fix: take one that ./inv ami.list --stack {stack.name} shows"
        )
    image = images.read(aws, id)
    if image is None:
        own = images.of_fleet(images.owned(aws), maker)
        listed = ", ".join(candidate.id for candidate in own[:5]) or "none"
        raise BuildInputError(
            f"{id} is not in {aws.region}, or this account may not see it; whether another region has it is not known\n"
            f"    expected: an image of {maker} in {aws.region}: {listed}\n"
            f"    fix: ./inv ami.build --stack {stack.name} makes one here"
        )
    if image.state != "available":
        reason = f": {image.reason}" if image.reason else ""
        fix = "wait until it is available" if image.state == "pending" else "choose another"
        raise BuildInputError(f"{id} is {image.state} in {aws.region}{reason}\n    fix: {fix}")
    if image.fact("fleet") != maker:
        of = image.fact("fleet")
        raise BuildInputError(
            f"{id} {f'belongs to {of}' if of else 'has no tag paddock:fleet'}, and stack {stack.name} uses images of "
            f"{maker}\n    fix: choose one of ./inv ami.list --stack {stack.name}, or write pools.<name>.ami by hand"
        )
    return image, _pin(image, stack)


def _pin(image: MachineImage, stack: Stack) -> Custom:
    """Return a pool's new `ami`, from the image's tags."""
    fix = (
        "    fix: write images.ami.driver in full, or ./inv catalog.refresh for the driver of the EKS release; then "
        f"pulumi up --stack {stack.name} and ./inv ami.build --stack {stack.name}"
    )
    driver, kubernetes = image.fact("driver"), image.fact("kubernetes")
    if not driver or not kubernetes:
        missing = [f"paddock:{name}" for name in ("driver", "kubernetes") if not image.fact(name)]
        raise BuildInputError(f"{image.id} has no tag {' and '.join(missing)}, so what it fits is not known\n{fix}")
    try:
        return Custom(custom=image.id, driver=driver, kubernetes=kubernetes)
    except ValidationError as error:
        wrong = "; ".join(f"paddock:{detail['loc'][0]} = {detail['input']!r}" for detail in error.errors())
        raise BuildInputError(f"{image.id} has tags that are not versions: {wrong}\n{fix}") from None


def decide(stack: Stack, image: MachineImage, pin: Custom, pools: Sequence[str]) -> Decision:
    """Compares the image with the pools `pools` and their runners."""
    changing = tuple(name for name in pools if stack.fleet.pools[name].ami != pin)
    return Decision(fit.compare(stack.fleet, image, pin, pools), changing)


def write(stack: Stack, pin: Custom, changing: Sequence[str]) -> None:
    """Writes the pin for these pools, all or none. Raises BuildInputError, the file untouched."""
    if changing:
        written = {"custom": pin.custom, "driver": pin.driver, "kubernetes": pin.kubernetes}
        pinning.pin(stack.path, {("pools", name, "ami"): written for name in changing})
