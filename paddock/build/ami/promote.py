"""Pins a machine image in a stack file, once everything that would use it has been compared with it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from paddock.build import pin as pinning
from paddock.build.ami import fit, images
from paddock.build.ami.fit import Fit
from paddock.build.ami.images import MachineImage
from paddock.build.aws import Aws
from paddock.build.errors import BuildInputError
from paddock.errors import did_you_mean
from paddock.fleet import Stack
from paddock.fleet.model.pool import Bottlerocket, Custom

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
                f"--pool: there is no pool {name[:100]!r} in stack {stack.name}\n"
                f"    expected: one of {', '.join(fleet.pools)}\n"
                f"    fix: {hint or 'name one of these, or leave --pool out'}"
            )
    chosen = tuple(dict.fromkeys(requested)) or tuple(
        name for name, pool in fleet.pools.items() if not isinstance(fleet.ami(pool), Bottlerocket)
    )
    if not chosen:
        raise BuildInputError(
            f"every pool of stack {stack.name} boots Bottlerocket\n    fix: name those that shall not with --pool"
        )
    return chosen


def usable(aws: Aws, stack: Stack, id: str, maker: str) -> tuple[MachineImage, Custom]:
    """The image, and what a pool's `ami` would be. Raises BuildInputError where it is not there, ready and ours."""
    if not _AMI_ID.fullmatch(id):
        raise BuildInputError(
            f"{id[:100]!r} is no image ID\n    expected: ami- and 8 to 17 digits of 0-9 and a-f\n"
            f"    fix: take one that ./inv ami.list --stack {stack.name} shows"
        )
    image = images.read(aws, id)
    if image is None:
        own = images.of_fleet(images.owned(aws), maker)
        listed = ", ".join(candidate.id for candidate in own[:5]) or "none"
        raise BuildInputError(
            f"{id} is not in {aws.region}, or not this account's to see; whether another region has it is not known\n"
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
        raise BuildInputError(f"{image.id} has no tag {' and '.join(missing)}, so nobody knows what it fits\n{fix}")
    try:
        return Custom(custom=image.id, driver=driver, kubernetes=kubernetes)
    except ValidationError as error:
        wrong = "; ".join(f"paddock:{detail['loc'][0]} = {detail['input']!r}" for detail in error.errors())
        raise BuildInputError(f"{image.id} has tags that are no versions: {wrong}\n{fix}") from None


def decide(stack: Stack, image: MachineImage, pin: Custom, pools: Sequence[str]) -> Decision:
    """Compares the image with the pools `pools` and their runners."""
    changing = tuple(name for name in pools if stack.fleet.pools[name].ami != pin)
    return Decision(fit.compare(stack.fleet, image, pin, pools), changing)


def write(stack: Stack, pin: Custom, changing: Sequence[str]) -> None:
    """Writes the pin for these pools, all or none. Raises BuildInputError, the file untouched."""
    if changing:
        written = {"custom": pin.custom, "driver": pin.driver, "kubernetes": pin.kubernetes}
        pinning.pin(stack.path, {("pools", name, "ami"): written for name in changing})


def document(stack: Stack, image: MachineImage, decided: Decision) -> dict[str, Any]:
    return {
        "image": image.id,
        "stack_file": stack.path.name,
        "changed": list(decided.changing),
        "checks": [{"subject": fit.subject, "fits": fit.fits, "text": fit.text} for fit in decided.fits],
    }


def outlook(stack: Stack, pin: Custom, changed: Sequence[str]) -> str:
    """Return a description of the change and of its effect in `pulumi up`."""
    rolls = []
    for name in changed:
        update = stack.fleet.pools[name].update
        first = "old ones stop first" if update.strategy == "minimal" else "new ones start first"
        rolls.append(f"    {name}: nodes that run are replaced, {update.max_unavailable} at a time, {first}\n")
    return (
        f"{stack.path.name} names {pin.custom} for {', '.join(changed)} "
        f"(driver {pin.driver}, Kubernetes {pin.kubernetes})\n"
        f"pulumi up makes a new version of each pool's launch template:\n{''.join(rolls)}"
        "    A drained node evicts its jobs, which have under two minutes to end: run it while none do. Pools without "
        "nodes change at once.\n"
        f"next: ./inv plan --stack {stack.name}\n"
    )
