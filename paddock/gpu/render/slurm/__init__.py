"""Slurm's configuration of this machine: the node and its generic resources."""

from paddock.gpu.render.slurm.node import render as render
