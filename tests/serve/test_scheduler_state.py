"""State of the models beyond their head, and the reason of a replica that did not start."""

from __future__ import annotations

from pathlib import Path

from paddock.bench.engine.shapes import shape
from paddock.serve.deployment import saved
from paddock.serve.deployment.scheduler import reason
from paddock.serve.placement.request import Policy, Request

SERVE_SAYS = """The deployment failed to start 3 times in a row. This may be due to a problem with its constructor.
See controller logs for details. Error:
ray::ServeReplica:model-tiny:replica.initialize_and_get_metadata() (pid=1, ip=192.0.2.2)
  File "replica.py", line 40, in __init__
    self._info = engine.load(spec)
{}"""


def test_saved_models_are_read_as_they_were(tmp_path: Path) -> None:
    file = tmp_path / saved.FILE
    model = saved.Saved("tiny", Request(shape("tiny"), "int8", 256), Policy("cuda", across_agents=True), "/m", ("box",))
    saved.write(file, [model])
    assert saved.read(file) == (model,)
    file.write_text('{"schema": 1, "models": [{}]}')
    assert saved.read(file) == ()
    assert saved.read(tmp_path / "absent") == ()


def test_the_reason_of_a_failed_replica_is_its_error_without_traceback() -> None:
    full = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"
    assert reason([SERVE_SAYS.format(full)]) == full
    ours = "BenchInputError: --model: cannot read /m\n    expected: a folder\n    fix: fetch it again"
    assert reason([SERVE_SAYS.format(ours)]) == (
        "BenchInputError: --model: cannot read /m; expected: a folder; fix: fetch it again"
    )
    assert reason(["", ""]) == "Ray Serve does not say why"
