"""A model by its name, its checkpoint's folder or its .gguf file: the shape, before anything is loaded."""

from __future__ import annotations

import json
from importlib.util import find_spec

from paddock.bench.engine import shapes
from paddock.bench.errors import BenchError, BenchInputError
from paddock.terminal import caller_path


def model_shape(name: str, where: str) -> tuple[shapes.Shape, str | None]:
    """Return the shape of a preset, of a checkpoint or of a .gguf file, and the number format of the last.

    Raises BenchInputError, begun by `where`.
    """
    path = caller_path(name)
    if path.suffix == ".gguf" or path.is_file():
        from paddock.bench.engine import gguf_file

        if find_spec("gguf") is None:
            raise BenchError(
                f"{where}: {name} is a file, and gguf, which reads models of one file, is not installed"
                "\n    fix: pip install 'paddock[bench]'"
            )
        model = gguf_file.inspect(path, where)
        return model.shape, model.dtype
    return (checkpoint_shape(name, where) if name and path.is_dir() else shapes.shape(name, where)), None


def checkpoint_shape(folder: str, where: str = "--model") -> shapes.Shape:
    """Return the shape that a checkpoint's config.json describes. Raises BenchInputError, begun by `where`."""
    config = caller_path(folder) / "config.json"
    try:
        return shapes.Shape.of(folder, json.loads(config.read_text()))
    except (OSError, ValueError) as error:
        raise BenchInputError(
            f"{where}: cannot read {config}: {error}\n    expected: the folder of a checkpoint, with its config.json"
        ) from None
