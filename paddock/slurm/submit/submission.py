"""Submission of methods to Slurm."""

from __future__ import annotations

from dataclasses import dataclass

from paddock.slurm.errors import SlurmError
from paddock.slurm.programs.jobs import log_name
from paddock.slurm.programs.place import Place
from paddock.slurm.submit.method import Method
from paddock.slurm.submit.resources import Options


@dataclass(frozen=True, slots=True)
class Submitted:
    """Job that Slurm took. `log` is its path on the node, with Slurm's marks for the tasks of an array."""

    id: str
    name: str
    log: str


def submit(place: Place, method: Method, script: str, options: Options) -> Submitted:
    """Submit a job. Raises SlurmError."""
    folder = method.directory or place.folder
    log = f"{folder}/{log_name(method.name, '%A_%a' if method.array else '%j')}"
    words = ["sbatch", "--parsable", f"--job-name={method.name}", f"--chdir={folder}", f"--output={log}"]
    words += [*options.words, *([f"--array={method.array}"] if method.array else [])]
    output = place.run(*words, text=script)
    id = output.text.strip().partition(";")[0]
    if output.code or not id.isdecimal():
        raise SlurmError(f"Slurm refused the job {method.name}: {output.reason}\n    sent: {' '.join(words)}")
    return Submitted(id, method.name, log.replace("%j", id).replace("%A", id))
