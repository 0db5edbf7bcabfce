"""Waiting for jobs to end."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection

from paddock.slurm.errors import SlurmError
from paddock.slurm.programs import jobs
from paddock.slurm.programs.jobs import Job
from paddock.slurm.programs.place import Place

_SILENCE = 300.0
"""Seconds for which a controller may be away, as in a restart."""


def wait(
    place: Place,
    ids: Collection[str],
    changed: Callable[[Job], None] = lambda job: None,
    silent: Callable[[str], None] = lambda reason: None,
    interval: float = 0.5,
) -> list[Job]:
    """Return the jobs, or tasks of arrays, once all have ended. Raises SlurmError for one that Slurm has lost.

    `changed` gets a job each time its state differs, `silent` why Slurm does not answer.
    """
    words: dict[str, str] = {}
    silence = 0.0
    while True:
        try:
            present = jobs.find(place, ids)
        except SlurmError as error:
            if silence and time.monotonic() - silence > _SILENCE:
                raise
            if not silence:
                silence = time.monotonic()
                silent(str(error).partition("\n")[0])
            time.sleep(interval)
            continue
        silence = 0.0
        for job in present:
            if not job.final and words.get(job.id) != job.words:
                words[job.id] = job.words
                changed(job)
        if all(job.final for job in present):
            return jobs.explained(place, present)
        time.sleep(interval)
