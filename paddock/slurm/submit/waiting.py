"""Waiting for jobs to end."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection

from paddock.slurm.errors import NoSuchJobError, SlurmError
from paddock.slurm.programs import jobs
from paddock.slurm.programs.jobs import SlurmJob
from paddock.slurm.programs.place import Place

_SILENCE = 300.0
"""Seconds for which a controller may be away, as in a restart."""
_LOST = 5.0
"""Seconds until a job that has left the controller must be in its file of completed jobs."""


def wait(
    place: Place,
    ids: Collection[str],
    changed: Callable[[SlurmJob], None] = lambda job: None,
    silent: Callable[[str], None] = lambda reason: None,
    interval: float = 0.5,
) -> list[SlurmJob]:
    """Return the jobs, or tasks of arrays, once all have ended. Raises SlurmError for one that Slurm has lost.

    `changed` gets a job each time its state differs, `silent` why Slurm does not answer.
    """
    words: dict[str, str] = {}
    silence = lost = 0.0
    while True:
        try:
            running = [job for job in jobs.remembered(place, *ids) if not job.final]
            ended = [] if running else jobs.find(place, ids)
        except NoSuchJobError as error:
            lost = lost or time.monotonic()
            if time.monotonic() - lost > _LOST:
                raise SlurmError(
                    f"Slurm has lost job {error.id}: neither its controller nor its file of completed jobs has it"
                    "\n    fix: the log of the job and slurmctld.log may say what happened"
                ) from None
            time.sleep(interval)
            continue
        except SlurmError as error:
            if silence and time.monotonic() - silence > _SILENCE:
                raise
            if not silence:
                silence = time.monotonic()
                silent(str(error).partition("\n")[0])
            time.sleep(interval)
            continue
        silence = lost = 0.0
        for job in running:
            if words.get(job.id) != job.words:
                words[job.id] = job.words
                changed(job)
        if ended and all(job.final for job in ended):
            return jobs.explained(place, ended)
        time.sleep(interval)
