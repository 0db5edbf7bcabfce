"""Configurations that give GPUs to containers, pods, virtual machines and jobs: pure functions over an inventory."""

from paddock.gpu.render.output import write
from paddock.gpu.render.registry import TARGETS, options, render
from paddock.gpu.render.rendered import File, Rendered, to_document

__all__ = ["TARGETS", "File", "Rendered", "options", "render", "to_document", "write"]
