"""Submission of methods to Slurm."""

from __future__ import annotations

from dataclasses import dataclass, field

from paddock.slurm.errors import SlurmError
from paddock.slurm.programs.jobs import log_name
from paddock.slurm.programs.nodes import Node, read_nodes
from paddock.slurm.programs.place import Place
from paddock.slurm.submit.method import Method
from paddock.slurm.submit.resources import Options, options


@dataclass(frozen=True, slots=True)
class Submitted:
    """Job that Slurm took. `log` is its path on the node, with Slurm's marks for the tasks of an array."""

    id: str
    name: str
    log: str


@dataclass(slots=True)
class Submitter:
    """Submissions to one Slurm, whose nodes are read once."""

    place: Place
    _nodes: list[Node] = field(default_factory=list)

    def prepare(self, method: Method, script: str, file: str) -> Prepared:
        """Check the method of a file against the nodes. Raises SlurmInputError and SlurmError; nothing is submitted."""
        self._nodes = self._nodes or read_nodes(self.place)
        return Prepared(method, script, options(method.resources, self._nodes, file))

    def submit(self, prepared: Prepared) -> Submitted:
        """Submit a job. Raises SlurmError."""
        method = prepared.method
        folder = method.directory or self.place.folder
        log = f"{folder}/{log_name(method.name, '%A_%a' if method.array else '%j')}"
        words = ["sbatch", "--parsable", f"--job-name={method.name}", f"--chdir={folder}", f"--output={log}"]
        words += [*prepared.options.words, *([f"--array={method.array}"] if method.array else [])]
        output = self.place.run(*words, text=prepared.script)
        id = output.text.strip().partition(";")[0]
        if output.code or not id.isdecimal():
            raise SlurmError(f"Slurm refused the job {method.name}: {output.reason}\n    sent: {' '.join(words)}")
        return Submitted(id, method.name, log.replace("%j", id).replace("%A", id))


@dataclass(frozen=True, slots=True)
class Prepared:
    """Job that Slurm's nodes can run."""

    method: Method
    script: str
    options: Options
