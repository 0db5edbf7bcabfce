"""Sources of charts and images other than the internet."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Discriminator, Field, Tag, WithJsonSchema, model_validator
from pydantic_core import InitErrorDetails

from paddock.fleet.errors import Problem
from paddock.fleet.model.base import Matching, Model, discriminator, mistake, refuse

ChartName = Literal[
    "cluster-autoscaler",
    "dcgm-exporter",
    "gha-runner-scale-set",
    "gha-runner-scale-set-controller",
    "kuberay-operator",
    "nvidia-device-plugin",
]
"""Every chart that the program installs."""
ChartKey = Literal[ChartName, "*"]

ALL = "*"
"""Key of what holds for every chart or registry that has no entry of its own."""

PRIVATE_ECR = re.compile(
    r"(?P<account>\d{12})\.dkr[.-]ecr(-fips)?\.(?P<region>[a-z0-9-]+)"
    r"\.(amazonaws\.com(\.cn)?|on\.aws|on\.amazonwebservices\.com\.cn)",
    re.ASCII,
)
"""The whole host of an AWS account's registry: EKS's add-ons and a fleet's own images are in such ones."""

_MOST = 1024
"""Characters of an address or a path."""
_SOURCE = "oci://HOST/PATH, https://HOST/PATH (a Helm repository), or a folder"


def is_folder(source: str) -> bool:
    """Return true if a source of charts is on this machine: a folder, or a chart's .tgz."""
    return "://" not in source


def _source(text: str) -> str:
    if not text.strip() or not text.isprintable() or text != text.strip() or len(text) > _MOST:
        raise ValueError(f'"{text}" is not a chart location; write {_SOURCE}')
    if is_folder(text):
        if text.startswith("~"):
            raise ValueError(f'"{text}" is not expanded; write an absolute path, or one from the stack file\'s folder')
        return text
    try:
        parts = urlsplit(text)
    except ValueError:
        parts = urlsplit("")
    if "@" in parts.netloc:
        raise ValueError(
            "the address holds a user or password; write the address alone, and give those to: helm registry login HOST"
        )
    if parts.scheme == "http":
        raise ValueError(f'"{text}" could be changed in transit; write https:// or oci://, or a folder of charts')
    if parts.scheme not in {"oci", "https"} or not parts.netloc or re.search(r"""[\s"'`{}<>\\^|?#]""", text):
        raise ValueError(f'"{text}" is not a chart location; write {_SOURCE}')
    if text.endswith("/"):
        raise ValueError(f'"{text}" ends with a slash; write {text.rstrip("/")}')
    return text


Source = Annotated[
    str,
    AfterValidator(_source),
    WithJsonSchema(
        {
            "type": "string",
            "pattern": r"""^((oci|https)://[^\s"'`{}<>\\^|@?#]*[^\s"'`{}<>\\^|/@?#]|[^~:\s]([^:]*[^:\s])?)$""",
            "maxLength": _MOST,
        }
    ),
]

_HOST = r"([a-z0-9-]+(\.[a-z0-9-]+)+(:\d+)?|[a-z0-9-]+:\d+|localhost)"
_PREFIX = re.compile(rf"^{_HOST}(/[a-z0-9]+([._-]+[a-z0-9]+)*)*$")
_PREFIX_FORM = "HOST or HOST/PATH, such as registry.example.com/mirror"


def _prefix(text: str) -> str:
    if "://" in text:
        raise ValueError(f'"{text}" has a scheme, which image names do not have; write {text.partition("://")[2]}')
    if text.endswith("/"):
        raise ValueError(f'"{text}" ends with a slash; write {text.rstrip("/")}')
    if "@" in text or ("/" in text and ":" in text.rpartition("/")[2]):
        raise ValueError(f'"{text}" names a single image; write the prefix of all: {_PREFIX_FORM}')
    if not _PREFIX.fullmatch(text) or len(text) > _MOST:
        raise ValueError(f'"{text}" is not a registry; write {_PREFIX_FORM}')
    return text


Prefix = Annotated[
    str, AfterValidator(_prefix), WithJsonSchema({"type": "string", "pattern": _PREFIX.pattern, "maxLength": _MOST})
]
Registry = Annotated[
    str, Matching(rf"^(\*|{_HOST})$", 'the host of a registry, such as nvcr.io or docker.io, or "*" for all others')
]


def _one_or_each(refusal: str, text: str, by: str) -> Discriminator:
    """Text for all, or a map by name."""
    return discriminator(
        lambda value: "<all>" if isinstance(value, str) else "<each>" if isinstance(value, dict) else None,
        f'{refusal}; write {text} for all, or {{{by}: {text}, "*": {text}}}',
    )


class Mirror(Model):
    """Sources of Helm charts and container images; by default their makers' own."""

    charts: (
        Annotated[
            Annotated[Source, Tag("<all>")] | Annotated[dict[ChartKey, Source], Field(min_length=1), Tag("<each>")],
            _one_or_each("not a chart location", "SOURCE", "NAME"),
        ]
        | None
    ) = None
    """One place of all charts, or one by chart name, `"*"` for the others. `oci://HOST/PATH` holds them as
    `PATH/NAME`, `https://` is a Helm repository, anything else a folder (from the stack file's) with
    `NAME-VERSION.tgz`. Under its own name a chart is `oci://` itself, a repository, a folder or a `.tgz`."""
    images: (
        Annotated[
            Annotated[Prefix, Tag("<all>")] | Annotated[dict[Registry, Prefix], Field(min_length=1), Tag("<each>")],
            _one_or_each("not a registry", "HOST/PATH", "REGISTRY"),
        ]
        | None
    ) = None
    """Takes the registry's place in the name of every image, or of those from a registry, `"*"` for the others:
    with `registry.example.com/mirror` `nvcr.io/nvidia/k8s-device-plugin` becomes
    `registry.example.com/mirror/nvidia/k8s-device-plugin`."""

    @model_validator(mode="after")
    def _one_chart_under_its_name(self) -> Mirror:
        refuse(self._mistakes())
        return self

    def _mistakes(self) -> Iterator[InitErrorDetails]:
        for name, source in self.sources.items():
            if name == ALL or chart_name(source) == name:
                continue
            if is_archive(source):
                message = f"{source} is not chart {name}, by its file name"
                yield mistake(message, ("charts", name), f"a file {name}-VERSION.tgz, as helm pull makes it")
            elif source.startswith("oci://"):
                message = f"{source} is not chart {name}, by its last part"
                yield mistake(message, ("charts", name), "the chart's own address", f"write {source}/{name}")
        source = self.sources.get(ALL, "")
        if is_archive(source):
            at = ("charts", ALL) if isinstance(self.charts, dict) else ("charts",)
            message = f"{source} is one chart, but all charts are looked up there"
            yield mistake(message, at, "the folder it is in", f"write {PurePosixPath(source).parent}")

    @property
    def sources(self) -> Mapping[str, str]:
        """Places of charts by name, that of all others under `*`."""
        return _by_name(self.charts)

    @property
    def prefixes(self) -> Mapping[str, str]:
        """Replacements of registries by registry, that of all others under `*`."""
        return _by_name(self.images)

    def chart(self, name: ChartName, version: str) -> str | None:
        """Return the place of a chart: oci:// with its name, https:// of its repository, a `.tgz`; None at its makers'.

        A relative path is one from the stack file's folder.
        """
        source = self.sources.get(name) or self.sources.get(ALL)
        if source is None:
            return None
        if is_folder(source):
            path = PurePosixPath(source)
            return str(path if is_archive(source) else path / f"{name}-{version}.tgz")
        return f"{source}/{name}" if source.startswith("oci://") and name not in self.sources else source

    def not_here(self, root: Path) -> Iterator[Problem]:
        """Folders and files of charts that are not on this machine. `root` is the stack file's folder."""
        for name, source in self.sources.items():
            path = root / source
            if not is_folder(source) or (path.is_file() if is_archive(source) else path.is_dir()):
                continue
            key = ("mirror", "charts") if isinstance(self.charts, str) else ("mirror", "charts", name)
            kind, expected = (
                "folder",
                "a folder with NAME-VERSION.tgz of each chart, oci://HOST/PATH or https://HOST/PATH",
            )
            if is_archive(source):
                kind, expected = "file", f"a chart as helm pull makes it: {name}-VERSION.tgz"
            host = _PREFIX.fullmatch(source) and not source.startswith(".")
            fix = f"write oci://{source} if that is a registry" if host else "docs/mirror.md says how to fill one"
            yield Problem(key, f"there is no {kind} {path}", expected, fix)

    def image(self, name: str) -> str:
        """An image's name with the mirror in its registry's place; as it is where it does not come from the mirror.

        What is in the mirror already stays, and so does what is in an AWS account's own registry, unless that registry
        has an entry.
        """
        host, rest = parts(name)
        prefix = self.prefixes.get(host) or ("" if PRIVATE_ECR.fullmatch(host) else self.prefixes.get(ALL, ""))
        return name if not prefix or self._has(name) else f"{prefix}/{rest}"

    def holds(self, image: str) -> bool:
        """Return true if nodes get an image from the mirror or from an AWS account's own registry."""
        return self._has(image) or bool(PRIVATE_ECR.fullmatch(registry(image)))

    def _has(self, image: str) -> bool:
        return any(image.startswith(f"{prefix}/") for prefix in self.prefixes.values())


def registry(image: str) -> str:
    """The registry that an image comes from."""
    return parts(image)[0]


def parts(image: str) -> tuple[str, str]:
    """(registry, the rest) of an image's name, as container engines read it: `docker:29` is docker.io's library's."""
    host, slash, rest = image.partition("/")
    if not slash or not ("." in host or ":" in host or host == "localhost"):
        host, rest = "docker.io", image
    return host, f"library/{rest}" if host == "docker.io" and "/" not in rest else rest


def chart_name(chart: str) -> str:
    """A chart's own name, from how a release names it: in a repository, as oci://, or as a `.tgz`."""
    return re.sub(r"-v?\d+\.\d.*\.tgz$", "", chart.rpartition("/")[2])


def is_archive(source: str) -> bool:
    """Return true if a source of charts is one packed chart on this machine."""
    return is_folder(source) and source.endswith(".tgz")


def _by_name(setting: str | Mapping[Any, str] | None) -> Mapping[str, str]:
    return {} if setting is None else {ALL: setting} if isinstance(setting, str) else setting
