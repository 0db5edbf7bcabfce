"""Stacks whose machine images a command is about."""

from __future__ import annotations

from paddock.console.project import root
from paddock.fleet import Stack, load
from paddock.fleet.stackfile.loader import stack_names
from paddock.images.errors import BuildInputError


def with_pipeline(name: str) -> Stack:
    """Return the stack, which must hold the images itself. Raises FleetError and BuildInputError."""
    stack = load(root(), name)
    holder = stack.fleet.layers.images
    if not stack.fleet.holds("images"):
        fix = (
            "paddock:layers: {images: here}"
            if holder == "none"
            else f"the same command with --stack {holder.split('/')[-1]}"
        )
        raise BuildInputError(f"stack {name} makes no images: paddock:layers says images: {holder}\n    fix: {fix}")
    return stack


def maker(stack: Stack) -> str:
    """Return the fleet under whose name the stack's images are built: its own, or that of the stack that holds them."""
    holder = stack.fleet.layers.images
    if stack.fleet.holds("images") or holder == "none":
        return stack.fleet.name
    other = holder.split("/")[-1]
    if other in stack_names(root()):
        return load(root(), other).fleet.name
    raise BuildInputError(
        f"the images of stack {stack.name} are made by {holder}, and Pulumi.{other}.yaml is not here\n"
        "    fix: run it where that stack's file is, or bring the file here"
    )
