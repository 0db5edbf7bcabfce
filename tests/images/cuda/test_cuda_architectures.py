from __future__ import annotations

import re

import pytest

from paddock import catalog
from paddock.images.cuda.builder import architectures
from paddock.images.errors import BuildInputError


@pytest.mark.parametrize("toolkit", list(catalog.cuda_toolkits()))
def test_every_gpu_that_a_toolkit_serves_is_compiled_for(toolkit: str) -> None:
    compiled = architectures(toolkit)
    for gpu in catalog.gpus().values():
        assert (gpu.compute_capability.replace(".", "") in compiled) == gpu.runs_cuda(toolkit), gpu.key
    assert list(compiled) == sorted(compiled, key=int)


def test_the_toolkits_that_drop_and_add_architectures() -> None:
    assert architectures("12.9") == ("70", "75", "80", "86", "89", "90", "100", "103", "120")
    assert architectures("13.0") == ("75", "80", "86", "89", "90", "100", "103", "120")
    assert architectures("12.4.1") == ("70", "75", "80", "86", "89", "90")


def test_an_architecture_is_asked_for_as_it_is_written_anywhere() -> None:
    assert architectures("12.8", ["sm_90", "7.5", "120", "compute_75", "9.0"]) == ("75", "90", "120")


@pytest.mark.parametrize(("toolkit", "architecture", "message"), [
    ("13.0", "sm_70", r"CUDA 13\.0 no longer compiles for sm_70 .*V100.*: the last that does is 12\.9\n"),
    ("13.0", "sm_70", r"fix: --cuda 12\.9,"),
    ("12.4", "10.0", r"CUDA 12\.4 does not yet compile for sm_100 .*B200.*: the first that does is 12\.8\n"),
    ("12.8", "sm_103", r"expected: one of CUDA 12\.9, 13\.0, .*, or of sm_70 sm_75 .* sm_120\n"),
    ("12.8", "sm_91", r"no GPU of the catalogue has the architecture sm_91\n.*\n.*did you mean sm_90\?"),
    ("12.8", "hopper", r"no GPU of the catalogue has the architecture hopper\n"),
    ("12.7", "90", r"there is no CUDA 12\.7\n.*12\.6, 12\.8"),
    ("13", "90", r"there is no CUDA 13\n"),
])  # fmt: skip
def test_an_unsupported_architecture_names_the_supported(toolkit: str, architecture: str, message: str) -> None:
    with pytest.raises(BuildInputError) as refused:
        architectures(toolkit, [architecture])
    assert re.search(message, str(refused.value)), refused.value
