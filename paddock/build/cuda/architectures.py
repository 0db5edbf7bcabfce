"""The GPU architectures that programs are compiled for: those of the catalogue's GPUs which a toolkit has."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from paddock import catalog
from paddock.build.errors import BuildInputError
from paddock.errors import did_you_mean, nearest

_WRITTEN = re.compile(r"(?:sm_|compute_)?(\d{1,2})\.?(\d)", re.ASCII)


def architectures(toolkit: str, requested: Sequence[str] = ()) -> tuple[str, ...]:
    """Return nvcc's numbers ("90" is compute capability 9.0), ascending: all of the toolkit's, or the requested ones.

    An architecture may be asked for as `90`, `9.0` or `sm_90`. Raises BuildInputError for a toolkit or an architecture
    that the catalogue does not hold, and for one that the toolkit dropped or does not know yet.
    """
    if toolkit.split(".")[:2] not in [version.split(".") for version in catalog.cuda_toolkits()]:
        raise BuildInputError(
            f"there is no CUDA {toolkit}\n    expected: one of {', '.join(catalog.cuda_toolkits())}"
            f"\n    fix: {did_you_mean(toolkit, catalog.cuda_toolkits(), 'choose one of these')}"
        )
    chosen = numbers(requested) or tuple(number for number in _catalogued() if _has(toolkit, number))
    for number in chosen:
        if not _has(toolkit, number):
            raise _refused(toolkit, number)
    return chosen


def numbers(requested: Iterable[str]) -> tuple[str, ...]:
    """The architectures asked for as nvcc numbers them, ascending. Raises BuildInputError for what is none."""
    return tuple(sorted({_number(text) for text in requested}, key=int))


def _catalogued() -> list[str]:
    """Return the architectures of every GPU of the catalogue, ascending."""
    return sorted({gpu.compute_capability.replace(".", "") for gpu in catalog.gpus().values()}, key=int)


def _gpus(architecture: str) -> list[catalog.Gpu]:
    return [gpu for gpu in catalog.gpus().values() if gpu.compute_capability.replace(".", "") == architecture]


def _has(toolkit: str, architecture: str) -> bool:
    return any(gpu.runs_cuda(toolkit) for gpu in _gpus(architecture))


def _number(text: str) -> str:
    written = _WRITTEN.fullmatch(text.strip())
    number = "".join(written.groups()) if written else text
    if number in _catalogued():
        return number
    near = nearest(number, _catalogued(), 0.5)
    raise BuildInputError(
        f"no GPU of the catalogue has the architecture {text}\n    expected: of {_sm_list(_catalogued())}"
        f"\n    fix: {f'did you mean sm_{near}?' if near else 'leave it out for all of them'}"
    )


def _refused(toolkit: str, architecture: str) -> BuildInputError:
    have = [version for version in catalog.cuda_toolkits() if _has(version, architecture)]
    dropped = catalog.version(toolkit) > catalog.version(have[-1])
    why = "no longer compiles" if dropped else "does not yet compile"
    which = f"the last that does is {have[-1]}" if dropped else f"the first that does is {have[0]}"
    names = ", ".join(gpu.name for gpu in _gpus(architecture))
    return BuildInputError(
        f"CUDA {toolkit} {why} for sm_{architecture} ({names}): {which}"
        f"\n    expected: one of CUDA {', '.join(have)}, or of {_sm_list(architectures(toolkit))}"
        f"\n    fix: --cuda {have[-1] if dropped else have[0]}, or leave sm_{architecture} out"
    )


def _sm_list(numbers: Iterable[str]) -> str:
    return " ".join(f"sm_{number}" for number in numbers)
