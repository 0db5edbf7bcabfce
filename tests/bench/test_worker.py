"""The worker on engines that fail: each job's reason is one line, and the others continue."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.packages import need

need("numpy", "psutil")

from paddock.bench.engines.door import BenchJob
from paddock.bench.errors import BenchError
from paddock.bench.runner import process, worker
from paddock.models.shapes import shape


class OutOfMemoryError(RuntimeError):
    """torch's, by its name."""


def test_a_job_that_fails_says_why_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    raised: list[Exception] = [
        BenchError("no such file"), MemoryError(), OutOfMemoryError("CUDA out of memory"),
        RuntimeError("CUDA error: no kernel image\nCompile with `TORCH_USE_CUDA_DSA`\n"),
    ]  # fmt: skip

    class Failing:
        def load(self, _: object) -> Any:
            raise raised.pop(0)

        def unload(self) -> None: ...

    monkeypatch.setattr(worker, "_engine", lambda _: Failing())
    monkeypatch.setattr(worker, "end_with_parent", lambda: None)
    job = BenchJob(shape("tiny"), "bf16", "cuda", (1,), (16,), 8, 1, 0, "torch")
    with pytest.raises(SystemExit) as ended:
        worker.main(process.Jobs.dump_json([job] * 4).decode())
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [event["message"].partition("\n")[0] for event in events if event["event"] == "failed"] == [
        "no such file", "the GPU's memory is full", "the GPU's memory is full",
    ]  # fmt: skip
    assert ended.value.code == "RuntimeError: CUDA error: no kernel image"
