"""Supply chain: Dockerfiles, signatures of images, and workflows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, ClassVar

import yaml

from paddock.plan import fields
from paddock.plan.finding import Severity
from paddock.plan.rules.base import Context, Rule, Violation, violation

ISSUER = "https://token.actions.githubusercontent.com"
_DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


def dockerfiles(context: Context) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """(path, instructions) of every Dockerfile."""
    for path, text in context.files.items():
        if path.rpartition("/")[2].endswith("Dockerfile"):
            yield path, list(_instructions(text))


def workflows(context: Context) -> Iterator[tuple[str, str, Mapping[Any, Any]]]:
    """(path, text, document) of every GitHub workflow that can be read."""
    for path, text in context.files.items():
        if path.startswith(".github/workflows/"):
            document = _document(text)
            if isinstance(document, Mapping):
                yield path, text, document


@lru_cache(maxsize=64)
def _document(text: str) -> Any:
    """Return what a file says, None where it cannot be read: several rules read each, and none changes it."""
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        return None


def jobs(document: Mapping[Any, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for name, job in fields.mapping(document, "jobs").items():
        if isinstance(job, Mapping):
            yield str(name), job


def _instructions(text: str) -> Iterator[tuple[str, str]]:
    """(KEYWORD, rest) with continued lines joined, comments gone and here-documents part of their instruction."""
    lines = iter(text.splitlines())
    for line in lines:
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        whole = line.strip()
        while whole.endswith("\\"):
            following = next(lines, "").strip()
            whole = (
                whole[:-1]
                + (" " if following.startswith("#") else f" {following}")
                + ("\\" if following.startswith("#") else "")
            )
        if ends := re.findall(r"<<-?[\"']?(\w+)[\"']?", whole):
            for inner in lines:
                whole += f"\n{inner}"
                if inner.strip() == ends[-1]:
                    break
        keyword, _, rest = whole.partition(" ")
        yield keyword.upper(), rest.strip()


class Dockerfiles(Rule):
    id = "PAD034"
    severity: ClassVar[Severity] = "warning"
    title = "Dockerfiles start from a digest, end as an ordinary user, and hold no secrets"
    why = "A tag is whatever its owner pushed last; ARG and ENV stay readable in every layer of the image."
    fix = "FROM name@sha256:...; COPY for ADD; update and install in one RUN; USER at the end; --mount=type=secret"
    equivalents = (
        "DL3006", "DL3007", "DL3008", "DL3009", "DL3020", "DL4006", "DS-0001", "DS-0002", "DS-0005", "DS-0017",
        "DS-0029", "DS-0031",
    )  # fmt: skip

    def check(self, context: Context) -> Iterator[Violation]:
        for path, instructions in dockerfiles(context):
            for message, fix in dict.fromkeys(self._wrong(instructions)):
                if not (path in _AS_ROOT and fix == _USER):
                    yield Violation(path, message, fix=fix)

    @staticmethod
    def _wrong(instructions: list[tuple[str, str]]) -> Iterator[tuple[str, str]]:
        """Yield (what is wrong, what to write)."""
        stages: set[str] = set()
        arguments: dict[str, str] = {}
        user = ""
        for keyword, rest in instructions:
            match keyword:
                case "FROM":
                    words = [word for word in rest.split() if not word.startswith("--")]
                    image = re.sub(
                        r"\$\{?(\w+)(:-[^}]*)?\}?",
                        lambda match: arguments.get(match[1], match[0]),
                        words[0] if words else "",
                    )
                    # An argument without a default is for the builder to fill: the file itself names nothing.
                    if image and image not in stages and image != "scratch" and "@sha256:" not in image:
                        yield f"FROM {image} names no digest", f"FROM {image}@sha256:..."
                    if len(words) > 2 and words[1].lower() == "as":
                        stages.add(words[2])
                    user = ""
                case "ARG":
                    name, _, default = rest.partition("=")
                    arguments[name.strip()] = default.strip().strip("\"'")
                    if _SECRET_NAME.search(name):
                        fix = f"RUN --mount=type=secret,id={name.strip()} where it is needed"
                        yield f"ARG {name} would stay in the image's history", fix
                case "ENV":
                    if re.search(rf"(^|\s){_SECRET_NAME.pattern}\s*[= ]\s*\S", rest, re.I):
                        yield "ENV holds what looks like a secret", "RUN --mount=type=secret where it is needed"
                case "USER":
                    user = rest
                case "ADD":
                    yield "ADD fetches and unpacks; COPY does what it says", "COPY in place of ADD"
                case "RUN":
                    if re.search(r"\b(apt-get|apt|dnf|yum|apk) +(-\S+ +)*update\b", rest) and not re.search(
                        r"\b(install|add|upgrade)\b", rest
                    ):
                        message = "update runs alone, so its layer is reused when it is old"
                        yield message, "update and install in one RUN"
        if instructions and user.split(":")[0] in ("", "root", "0"):
            yield "it runs as root", _USER


_USER = "USER and an ordinary user at the end"
_AS_ROOT = {"images/slurm/Dockerfile"}
"""Images whose daemon starts programs as other users, and that no pod of a fleet runs."""
_SECRET_NAME = re.compile(r"\w*(TOKEN|PASSWORD|PASSWD|SECRET|PRIVATE_KEY|API_?KEY)\w*", re.I)
_PUSHES = re.compile(
    r"\b(docker (image )?push|docker buildx build\b.*--push|crane push|skopeo copy"
    r"|(inv|paddock) (push-runner|images\.push|(build-runner|images\.build)\b.* --(push|pin)))\b",
    re.I,
)
_NEEDED = {
    "an SBOM": re.compile(r"\bsyft\b|anchore/sbom-action|--sbom\b|\bsbom: *true|\bsbom: *generator", re.I),
    "provenance": re.compile(
        r"actions/attest|attest-build-provenance|cosign attest|--provenance\b|\bprovenance: *(true|mode)", re.I
    ),
    "a signature": re.compile(r"\bcosign sign\b", re.I),
}


_HOW = {"an SBOM": "syft", "provenance": "actions/attest", "a signature": "cosign sign by digest"}


class SignedImages(Rule):
    id = "PAD035"
    severity: ClassVar[Severity] = "warning"
    title = "Images that a workflow pushes carry an SBOM, provenance and a signature"
    why = "Without them nobody can tell which source an image was built from, or that it was ours at all."
    fix = "syft, actions/attest and cosign sign by digest, in the job that pushes"
    equivalents = ("SLSA L2", "SLSA L3", "CIS 5.1.4")

    def check(self, context: Context) -> Iterator[Violation]:
        for path, _text, document in workflows(context):
            for name, job in jobs(document):
                if not any(self._pushes(step) for step in fields.items(job, "steps")):
                    continue
                spoken = yaml.dump(dict(job), Dumper=_DUMPER, width=10_000)
                if missing := [part for part, sign in _NEEDED.items() if not sign.search(spoken)]:
                    message = f"job {name} pushes an image without {', '.join(missing)}"
                    yield Violation(path, message, fix=f"in job {name}: {', '.join(_HOW[part] for part in missing)}")
        for item in context.graph.resources.values():
            if item.type.rpartition(":")[2] == "ClusterImagePolicy":
                for authority in fields.items(item.inputs, "spec", "authorities"):
                    for identity in fields.items(authority, "keyless", "identities"):
                        if fields.text(identity, "issuer") != ISSUER:
                            yield violation(item, f"it trusts another issuer than {ISSUER}", fix=f"issuer: {ISSUER}")
                        if fields.text(identity, "subjectRegExp") in ("", ".*") and not fields.text(
                            identity, "subject"
                        ):
                            fix = "subject: the workflow that signs, of one repository"
                            yield violation(item, "it trusts every repository on GitHub", fix=fix)

    @staticmethod
    def _pushes(step: Any) -> bool:
        action = "docker/build-push-action" in fields.text(step, "uses") and fields.is_on(
            fields.get(step, "with", "push")
        )
        return action or _PUSHES.search(fields.text(step, "run").replace("\\\n", " ")) is not None


class Workflows(Rule):
    id = "PAD036"
    severity: ClassVar[Severity] = "error"
    title = "Workflows pin actions by commit and start with read rights only"
    why = "A moved tag of one action has run in thousands of repositories at once; what its token may do is the damage."
    fix = "uses: owner/action@<commit>  # version; permissions: {contents: read} at the top, more in one job"
    equivalents = ("Token-Permissions", "Pinned-Dependencies")

    def check(self, context: Context) -> Iterator[Violation]:
        for path, _text, document in workflows(context):
            permissions = document.get("permissions")
            if permissions is None:
                message = "no permissions at the top, so every job gets the repository's default"
                yield Violation(path, message, fix="permissions: {contents: read} at the top")
            elif isinstance(permissions, Mapping):
                for scope, right in permissions.items():
                    if right == "write":
                        message = f"{scope}: write holds for every job; write it in the one that needs it"
                        yield Violation(path, message, fix=f"permissions.{scope}: write in the job that needs it")
            elif permissions != "read-all":
                message = f"permissions: {permissions} holds for every job"
                yield Violation(path, message, fix="permissions: {contents: read} at the top")
            for name, job in jobs(document):
                if job.get("permissions") == "write-all":
                    fix = f"jobs.{name}.permissions: those that it needs"
                    yield Violation(path, f"job {name} may write everything", fix=fix)
                for used in (
                    fields.text(job, "uses"),
                    *(fields.text(step, "uses") for step in fields.items(job, "steps")),
                ):
                    if used and not self._pinned(used):
                        fix = f"uses: {used.partition('@')[0]}@ and the commit, with the version behind a #"
                        yield Violation(path, f"{used} is not pinned to a commit", fix=fix)

    @staticmethod
    def _pinned(used: str) -> bool:
        return bool(
            used.startswith("./")
            or re.search(r"@[0-9a-f]{40}$", used)
            or re.search(r"^docker://.*@sha256:[0-9a-f]{64}$", used)
        )


RULES = (Dockerfiles(), SignedImages(), Workflows())
