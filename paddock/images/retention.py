"""Images that ECR's lifecycle policies take away, told before: pins of stack files against what a registry holds.

The rules are ECR's own (docs.aws.amazon.com/AmazonECR/latest/userguide/LifecyclePolicies.html, read 2026-11-28): an
image belongs to the first rule whose tags it has, in the order of priority, and no later rule may take it; a count is
of the newest by their push; what an index names, and what is attached to an image, goes with that and not before.
"""

from __future__ import annotations

import fnmatch
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from paddock.errors import PaddockError
from paddock.fleet.model.mirror import PRIVATE_ECR
from paddock.images.pin import stack_lines

NEAR_PUSHES, NEAR_DAYS = 3, 7
"""A pin is told when so few pushes, or days, are left to it."""
_REFERENCE = re.compile(
    rf"{PRIVATE_ECR.pattern}/(?P<name>[a-z0-9][a-z0-9._/-]*)(?::(?P<tag>\w[\w.-]*))?(?:@(?P<digest>sha256:[0-9a-f]{{64}}))?",
    re.ASCII,
)
_COMMENT = re.compile(r"(?:^|\s)#.*")
_ALL_STATES = {"imageStatus": "ANY"}
_WHOLE_PAGES = {"PageSize": 1000}
_PLACES = 3
"""Places of a pin that are told."""
_MISSING = ("RepositoryNotFoundException", "LifecyclePolicyNotFoundException")
_NEWER = "pin a newer image, or set a higher images.keep in the stack that makes the repository"

Standing = Literal["kept", "near", "going", "archived", "gone", "unknown"]


@dataclass(frozen=True, slots=True)
class Repository:
    """A repository of a private registry of AWS."""

    account: str
    region: str
    name: str


@dataclass(frozen=True, slots=True)
class Pin:
    """An image in ECR that something names by tag, digest or both; the digest counts where there is one."""

    reference: str
    repository: Repository
    tag: str
    digest: str
    places: tuple[str, ...]
    """`file:line` of stack files, or pods."""

    @property
    def where(self) -> str:
        more = len(self.places) - _PLACES
        return ", ".join(self.places[:_PLACES]) + (f" and {more} more" if more > 0 else "")


@dataclass(frozen=True, slots=True)
class Shelf:
    """Images of a repository and the rules of its lifecycle policy, as ECR answers. None for one that is not there."""

    images: Sequence[Mapping[str, Any]] | None
    rules: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True, slots=True)
class Fate:
    """Future of an image, by the policy and images of now."""

    standing: Standing
    message: str
    fix: str = ""


def pins(root: Path) -> tuple[Pin, ...]:
    """Return every image in ECR that a stack file names, whatever the key; comments name none.

    Raises BuildInputError for a file that cannot be read.
    """
    return found((_COMMENT.sub("", line), place) for place, line in stack_lines(root))


def found(named: Iterable[tuple[str, str]]) -> tuple[Pin, ...]:
    """Return the images in ECR of texts, each with its place."""
    places: dict[str, list[str]] = {}
    parts: dict[str, re.Match[str]] = {}
    for text, place in named:
        for match in _REFERENCE.finditer(text):
            if match["tag"] or match["digest"]:
                parts[match[0]] = match
                places.setdefault(match[0], []).append(place)
    return tuple(
        Pin(
            reference,
            Repository(match["account"], match["region"], match["name"]),
            match["tag"] or "",
            match["digest"] or "",
            tuple(dict.fromkeys(places[reference])),
        )
        for reference, match in parts.items()
    )


def shelf(repository: Repository, pages: Callable[..., Iterable[Any]], ask: Callable[..., Any]) -> Shelf:
    """Read a repository with the calls of a client of AWS. Raises what they raise."""
    where = {
        "region": repository.region,
        "registryId": repository.account,
        "repositoryName": repository.name,
    }
    try:
        images = list(
            pages("ecr", "describe_images", "imageDetails", filter=_ALL_STATES, PaginationConfig=_WHOLE_PAGES, **where)
        )
    except PaddockError as error:
        if _code(error) not in _MISSING:
            raise
        return Shelf(None)
    try:
        rules = json.loads(ask("ecr", "get_lifecycle_policy", **where)["lifecyclePolicyText"])["rules"]
    except PaddockError as error:
        if _code(error) not in _MISSING:
            raise
        rules = []
    return Shelf(images, rules)


def fate(pin: Pin, held: Shelf, now: datetime) -> Fate:
    """Return what becomes of a pin."""
    if held.images is None:
        return Fate("gone", f"there is no repository {pin.repository.name}", "pin an image that is there")
    image = next((image for image in held.images if _is(pin, image)), None)
    if image is None:
        return Fate("gone", "the repository does not have it", "push it again, or pin an image that is there")
    if image.get("imageStatus", "ACTIVE") != "ACTIVE":
        return Fate(
            "archived",
            f"ECR has archived it{_on(image.get('lastArchivedAt'))}, and what is archived cannot be pulled",
            f"aws ecr update-image-storage-class --region {pin.repository.region} --registry-id"
            f" {pin.repository.account} --repository-name {pin.repository.name} --image-id"
            f" imageDigest={image['imageDigest']} --target-storage-class STANDARD",
        )
    if subject := image.get("subjectManifestDigest"):
        return Fate("unknown", f"it is attached to {subject}, with which ECR takes it away")
    if not image.get("imageTags") and any(
        "index" in _media(one) or "manifest.list" in _media(one) for one in held.images
    ):
        return Fate("unknown", "it has no tag; ECR keeps it as long as an index names it, and which does is not read")
    active = [one for one in held.images if one.get("imageStatus", "ACTIVE") == "ACTIVE"]
    for rule in sorted(held.rules, key=lambda rule: int(rule["rulePriority"])):
        selection = rule["selection"]
        if selection.get("storageClass", "standard") == "standard" and _selects(selection, image):
            return _by(rule, image, [one for one in active if _selects(selection, one)], now)
    return Fate("kept", "no rule of the repository takes it")


def _by(rule: Mapping[str, Any], image: Mapping[str, Any], rivals: Sequence[Mapping[str, Any]], now: datetime) -> Fate:
    """Return what the rule does with an image of those that it selects."""
    selection, name = rule["selection"], rule.get("description") or f"rule {rule['rulePriority']}"
    most = int(selection["countNumber"])
    does = "archives it" if rule["action"]["type"] == "transition" else "takes it away"
    if selection["countType"] == "imageCountMoreThan":
        newer = sum(_pushed(one) > _pushed(image) for one in rivals)
        left, near, unit = most - newer, NEAR_PUSHES, "push"
    else:
        since = image.get("lastRecordedPullTime") if selection["countType"] == "sinceImagePulled" else None
        left, near, unit = most - (now - (since or _pushed(image))).days, NEAR_DAYS, "day"
    if left <= 0:
        return Fate("going", f'"{name}" {does} within 24 hours', _NEWER)
    amount = f"{left} more {unit}{'' if left == 1 else 'es' if unit == 'push' else 's'}"
    return Fate("near" if left <= near else "kept", f'"{name}" {does} after {amount}', _NEWER if left <= near else "")


def _selects(selection: Mapping[str, Any], image: Mapping[str, Any]) -> bool:
    """Return whether a rule selects an image: by tags, every pattern or prefix of the list must fit one of them."""
    tags: Sequence[str] = image.get("imageTags") or ()
    match selection["tagStatus"]:
        case "any":
            return True
        case "untagged":
            return not tags
    patterns = [*selection.get("tagPatternList", ()), *(f"{prefix}*" for prefix in selection.get("tagPrefixList", ()))]
    return all(any(fnmatch.fnmatchcase(tag, _glob(pattern)) for tag in tags) for pattern in patterns)


def _glob(pattern: str) -> str:
    """Return ECR's pattern, of which `*` alone is special, as Python's."""
    return re.sub(r"([\[\]?])", r"[\1]", pattern)


def _is(pin: Pin, image: Mapping[str, Any]) -> bool:
    return image["imageDigest"] == pin.digest if pin.digest else pin.tag in (image.get("imageTags") or ())


def _pushed(image: Mapping[str, Any]) -> datetime:
    """Return the moment that counts: of the last restoring from the archive, else of the push."""
    moment: datetime = image.get("lastActivatedAt") or image["imagePushedAt"]
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _media(image: Mapping[str, Any]) -> str:
    return str(image.get("imageManifestMediaType") or "")


def _on(moment: datetime | None) -> str:
    return f" on {moment.date()}" if moment else ""


def _code(error: PaddockError) -> str:
    """Return AWS's code of an error, or of the one that it was made of."""
    return str(getattr(error, "code", "") or getattr(error.__cause__, "code", ""))


def fates(
    named: Sequence[Pin], pages: Callable[..., Iterable[Any]], ask: Callable[..., Any], now: datetime
) -> Iterator[tuple[Pin, Fate | PaddockError]]:
    """Yield what becomes of each pin, or why that is not known; each repository is read once."""
    shelves: dict[Repository, Shelf | PaddockError] = {}
    for pin in named:
        if pin.repository not in shelves:
            try:
                shelves[pin.repository] = shelf(pin.repository, pages, ask)
            except PaddockError as error:
                shelves[pin.repository] = error
        held = shelves[pin.repository]
        yield pin, held if isinstance(held, PaddockError) else fate(pin, held, now)
