"""`gpu.reset`: reset a GPU that nobody uses, or show what that would do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from paddock.console.command import command
from paddock.console.parameters import Flag, Parameters, parameter
from paddock.console.report import Report
from paddock.gpu import serialization
from paddock.gpu.commands.inputs import pick

if TYPE_CHECKING:
    from paddock.gpu.model import Inventory
    from paddock.gpu.reset import ResetSteps, Result


@dataclass(frozen=True, kw_only=True)
class Reset(Parameters):
    """Parameters of `gpu.reset`."""

    gpu: str = parameter(..., "an index, or the beginning of a UUID")
    kind: Literal["full", "soft"] = parameter(
        "full",
        "soft: only what a user changed: clocks, modes, error counters",
        flag=Flag("soft", "only what a user changed: clocks, modes, error counters", const="soft"),
    )
    dry_run: bool = parameter(
        False, "show what would be done, and do nothing", flag=Flag("yes", "do it", const=False, absent=True)
    )


@dataclass(frozen=True, kw_only=True)
class ResetPlan(Report):
    """A reset that was not done: its steps, or why it is refused."""

    SCHEMA = 1
    plan: ResetSteps
    failure: str
    """The error of a call that reads no exit code, where one that should have been done was refused."""

    @property
    def exit_code(self) -> int:
        return int(bool(self.plan.refused))

    def document(self) -> dict[str, Any]:
        return {**serialization.data(self.plan), "done": False}

    def text(self) -> Iterator[str]:
        yield from [f"refused: {why}" for why in self.plan.refused] or [step.what for step in self.plan.steps]
        yield from (f"note: {note}" for note in self.plan.notes)
        if not self.plan.refused:
            yield "nothing was done; --yes does it"


@dataclass(frozen=True, kw_only=True)
class ResetDone(Report):
    """The outcome of each step of a reset."""

    SCHEMA = 1
    result: Result

    @property
    def failure(self) -> str:
        """The error of a call that reads no exit code, where a step failed."""
        if self.result.ok:
            return ""
        failures = "; ".join(f"{outcome.step}: {outcome.output}" for outcome in self.result.outcomes if outcome.code)
        return f"GPU {self.result.plan.uuid} was not reset: {failures or self.result.after}"

    @property
    def exit_code(self) -> int:
        return int(not self.result.ok)

    def document(self) -> dict[str, Any]:
        return {**serialization.data(self.result), "done": self.result.ok}

    def text(self) -> Iterator[str]:
        for outcome in self.result.outcomes:
            yield f"{'done' if outcome.code == 0 else f'failed ({outcome.code})'}: {outcome.step}"


@command()
def reset(parameters: Reset) -> ResetPlan | ResetDone:
    """Reset a GPU, unless only the plan is wanted or it is in use. Raises NoGpu, GpuInputError and DriverHangs."""
    from paddock.gpu import inventory, reset
    from paddock.gpu.host import bounded
    from paddock.gpu.leases.manager import Leases

    def read() -> Inventory:
        return bounded.answer(lambda: inventory.inventory(processes=True, topology=True))

    current = read()
    plan = reset.plan_for(current, pick(current, parameters.gpu), Leases().held(), kind=parameters.kind)
    if parameters.dry_run or plan.refused:
        refusal = f"GPU {plan.uuid} is not reset: {'; '.join(plan.refused)}\n    expected: a GPU that nothing uses"
        return ResetPlan(plan=plan, failure="" if parameters.dry_run else refusal)
    return ResetDone(result=reset.execute(plan, read, Leases().held))
