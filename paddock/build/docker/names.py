"""Image references as Docker reads them."""

from __future__ import annotations

from dataclasses import dataclass

from paddock.build.errors import BuildInputError

HUB = "docker.io"


@dataclass(frozen=True, slots=True)
class Reference:
    registry: str
    """Host and port; `docker.io` where the reference names none."""
    name: str
    """With its registry, as it was written; without tag and digest."""
    tag: str
    """Empty where a digest is given."""
    digest: str

    @property
    def written(self) -> str:
        return f"{self.name}@{self.digest}" if self.digest else f"{self.name}:{self.tag}"

    @classmethod
    def read(cls, text: str) -> Reference:
        """Raises BuildInputError for what is no reference."""
        name, _, digest = text.partition("@")
        path, slash, last = name.rpartition("/")
        last, _, tag = last.partition(":")
        name = f"{path}{slash}{last}"
        first = name.split("/")[0]
        if not last or any(each.isspace() for each in text) or name != name.lower():
            raise BuildInputError(
                f"{text!r} is no image reference\n    expected: REGISTRY/NAME:TAG, all but the tag in lower case"
                "\n    fix: localhost:5000/runner-gpu:12.8"
            )
        host = "/" in name and ("." in first or ":" in first or first == "localhost")
        return cls(first if host else HUB, name, tag or ("" if digest else "latest"), digest)
