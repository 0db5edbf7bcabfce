"""Recipes of images, decided without an engine: context, arguments, name and labels."""

from __future__ import annotations

import os
import platform as machine
import re
import subprocess
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from paddock.errors import did_you_mean
from paddock.images.errors import BuildInputError
from paddock.images.recipes import context, labels
from paddock.images.recipes.bases import Base

Architecture = Literal["amd64", "arm64"]
_NAMES: Mapping[str, Architecture] = {"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64", "arm64": "arm64"}

IMAGES = "images"
_OWN_NAME = "PADDOCK_IMAGE"
"""Argument that gets the image's name, whose tag tells its content; a program inside can say what it ran in."""


@dataclass(frozen=True, slots=True)
class Recipe:
    name: str
    """The name of its folder in `images/`, and of its repository."""
    base: Base
    architecture: Architecture
    version: str
    """The first part of its tag."""
    args: Mapping[str, str]
    labels: Mapping[str, str]

    @property
    def platform(self) -> str:
        return f"linux/{self.architecture}"


@dataclass(frozen=True, slots=True)
class Prepared:
    """A recipe with the context that it is built from, staged."""

    recipe: Recipe
    context: Path
    content: str
    """sha256 of all that decides what is in the image."""

    @property
    def tag(self) -> str:
        return f"{self.recipe.version}-{self.content[:12]}"

    @property
    def local(self) -> str:
        """Return its name in the engine of this machine."""
        return f"paddock/{self.recipe.name}:{self.tag}"

    def remote(self, registry: str) -> str:
        return f"{registry}/{self.recipe.name}:{self.tag}"

    @property
    def arguments(self) -> dict[str, str]:
        """Return the arguments of its build: the recipe's, and its own name where the Dockerfile declares that."""
        dockerfile = (self.context / "Dockerfile").read_text(encoding="utf-8")
        asks = re.search(rf"^ARG {_OWN_NAME}\b", dockerfile, re.MULTILINE)
        return {**({_OWN_NAME: f"{self.recipe.name}:{self.tag}"} if asks else {}), **self.recipe.args}


def plain(
    root: Path,
    name: str,
    base: Base,
    architecture: Architecture,
    build_args: Sequence[str] = (),
    own: Mapping[str, str] | None = None,
) -> Recipe:
    """Return the recipe of an image with no source but its folder; `own` are its arguments. Raises BuildInputError."""
    defaults = {"BASE": base.image, "CUDA": base.cuda or "", **(own or {})}
    args = arguments(folder(root, name) / "Dockerfile", defaults, build_args)
    return Recipe(name, base, architecture, base.cuda or "nocuda", args, labels={})


def folder(root: Path, name: str) -> Path:
    """The folder of an image. Raises BuildInputError, naming those that there are."""
    path = root / IMAGES / name
    if "/" not in name and (path / "Dockerfile").is_file():
        return path
    names = sorted(dockerfile.parent.name for dockerfile in (root / IMAGES).glob("*/Dockerfile"))
    bare = name and "/" not in name and path.is_dir()
    mistake = f"{IMAGES}/{name} has no Dockerfile" if bare else f"there is no image {name or '(no name)'}"
    raise BuildInputError(
        f"{mistake}\n    expected: one of {', '.join(names) or 'images/, which is empty'}"
        f"\n    fix: {did_you_mean(name, names, 'images.build NAME, or a folder with a Dockerfile')}"
    )


def architecture(platform: str | None, nodes: Collection[str] = ()) -> Architecture:
    """Return that of a name like `linux/arm64`, else of `nodes`, else of this machine. Raises BuildInputError."""
    if platform is None and len(set(nodes)) == 1:
        platform = f"linux/{next(iter(nodes))}"
    name = machine.machine().lower() if platform is None else platform.removeprefix("linux/")
    if name not in _NAMES or (platform is not None and not platform.startswith("linux/")):
        raise BuildInputError(
            f"images are not built for {platform or name}\n    expected: linux/amd64 or linux/arm64"
            "\n    fix: --platform linux/amd64"
        )
    return _NAMES[name]


def arguments(dockerfile: Path, defaults: Mapping[str, str], build_args: Sequence[str]) -> dict[str, str]:
    """Return the `defaults` that the Dockerfile declares, overridden by a user's NAME=VALUE. Raises BuildInputError."""
    declared = dict.fromkeys(re.findall(r"^ARG (\w+)", dockerfile.read_text(encoding="utf-8"), re.MULTILINE))
    chosen = {name: defaults[name] for name in declared if name in defaults}
    for word in build_args:
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise BuildInputError(
                f"--build-arg {word} gives no {'value' if name else 'name'}\n    expected: NAME=VALUE"
                f"\n    fix: --build-arg {name or 'NAME'}={value or 'VALUE'}"
            )
        if name == "BASE":
            raise BuildInputError(
                f"--build-arg {word} changes the base, but not the tag that names its CUDA\n    expected: --base"
                f"\n    fix: --base {value or 'IMAGE'}"
            )
        if name not in declared:
            raise BuildInputError(
                f"the image has no argument {name}\n    expected: one of {', '.join(declared)}"
                f"\n    fix: {did_you_mean(name, declared, 'leave it out')}"
            )
        chosen[name] = value
    return chosen


def prepare(recipe: Recipe, parts: Mapping[str, Path], into: Path) -> Prepared:
    """Stages the context in `into` and names what will be built from it."""
    context.stage(parts, into)
    facts = {
        **{f"argument {name}": value for name, value in recipe.args.items()},
        "base": recipe.base.identity,
        "platform": recipe.platform,
    }
    return Prepared(recipe, into, context.content(into, facts))


def check_writable(folder: Path) -> None:
    """Check that files can be written to a folder, which need not exist yet. Raises BuildInputError."""
    there = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    if not there.is_dir() or not os.access(there, os.W_OK):
        raise BuildInputError(
            f"nothing can be written to {folder}\n    expected: a folder that you may write\n    fix: choose another"
        )


def labels_of(prepared: Prepared, root: Path) -> dict[str, str]:
    """Return the image's labels, in the names of the Open Container Initiative and Paddock's own."""
    recipe = prepared.recipe
    source = _git(root, "config", "--get", "remote.origin.url")
    # Each is given, also without a value: the base's own would show through.
    return {
        labels.TITLE: recipe.name,
        labels.VERSION: prepared.tag,
        labels.CREATED: datetime.now(UTC).isoformat(timespec="seconds"),
        labels.REVISION: _revision(root),
        labels.SOURCE: re.sub(r"//[^/]*@", "//", source),
        labels.BASE_NAME: recipe.base.image.partition("@")[0],
        labels.BASE_DIGEST: recipe.base.identity,
        labels.CONTENT: prepared.content,
        labels.CUDA: recipe.base.cuda or "",
        labels.PACKAGES: _packages(prepared),
        **recipe.labels,
    }


def _packages(prepared: Prepared) -> str:
    """The day that the packages are of: as given, else as the Dockerfile itself says; empty where neither does."""
    text = (prepared.context / "Dockerfile").read_text(encoding="utf-8")
    declared = re.search(r"^ARG PACKAGES_AS_OF=(\S+)", text, re.MULTILINE)
    return prepared.recipe.args.get("PACKAGES_AS_OF", declared[1] if declared else "")


def _revision(root: Path) -> str:
    """The commit, `-dirty` where the checkout has other files."""
    commit = _git(root, "rev-parse", "HEAD")
    # A look must not write to the index, which another git may be using.
    other = commit and _git(root, "--no-optional-locks", "status", "--porcelain", "--untracked-files=normal", "--", ".")
    return f"{commit}-dirty" if other else commit


def _git(root: Path, *words: str) -> str:
    """Return git's output; empty where there is no git or no repository."""
    try:
        finished = subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return finished.stdout.strip() if not finished.returncode else ""
