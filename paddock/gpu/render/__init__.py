"""Renderers of configurations that pass GPUs to containers, pods, virtual machines and Slurm jobs.

They are pure functions over an inventory; only `output` writes files. A new target is a module here and an entry in
`registry.TARGETS`.
"""

from paddock.gpu.render.output import write
from paddock.gpu.render.registry import TARGETS, options, render
from paddock.gpu.render.rendered import File, Rendered, to_document

__all__ = ["TARGETS", "File", "Rendered", "options", "render", "to_document", "write"]
