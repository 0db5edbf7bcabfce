"""The files of a model on the machine that serves it, whatever names it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from paddock.models import gguf, random_gguf
from paddock.models.errors import error
from paddock.models.local import hub, requantise
from paddock.models.local.kept import Progress, cache, kept, silent
from paddock.models.presets import PRESETS
from paddock.models.shapes import shape

RANDOM = "int8"
"""Format of random weights where none is named."""
_WRITER = "2"
"""Changes with the bytes that `random_gguf` writes of a seed."""


def weights(
    source: str, dtype: str = "", progress: Progress = silent, environ: Mapping[str, str] = os.environ
) -> Path:  # fmt: skip
    """Return the folder or file that an engine loads of a model, and bring it here first where it is not.

    `hf://OWNER/REPO[@REVISION][/FILE]` is fetched; a name is a file of random weights in that shape, written once; a
    .gguf file of 16 or 32 bits is packed once where `dtype` is int8 or int4, and served as it is else. Raises
    ModelError.
    """
    if hub.is_reference(source):
        path = hub.fetch(source, progress)
    elif source in PRESETS and not Path(source).exists():
        return _random(source, dtype or RANDOM, progress, environ)
    else:
        path = Path(source)
    if not path.exists():
        raise error(
            f"there is no {path} on this machine", "the model at the same place on every machine that serves it"
        )
    if path.is_dir() or dtype not in requantise.TYPES or gguf.read(path).quantised:
        return path
    return requantise.packed(path, dtype, progress, environ)


def _random(name: str, dtype: str, progress: Progress, environ: Mapping[str, str]) -> Path:
    own, folder = shape(name), cache(environ)
    needed, what = random_gguf.nbytes(own, dtype), f"random weights of {name}"
    progress(what, 0, needed)
    return kept(
        f"{name}-random-{dtype}-{_WRITER}.gguf",
        needed,
        what,
        lambda file: random_gguf.write_to(file, folder, own, dtype),
        progress,
        environ,
    )
