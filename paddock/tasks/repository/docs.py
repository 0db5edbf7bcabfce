"""The documentation."""

from __future__ import annotations

from invoke.context import Context
from invoke.exceptions import Exit

from paddock.tasks.common import ROOT, task


@task(
    name="build",
    help={"serve": "then show it on this machine, and build it again after each change", "port": "with --serve"},
)
def docs_build(c: Context, serve: bool = False, port: int = 8000) -> None:
    """Build the site of the documentation in build/site; a broken link fails it."""
    from paddock.site import build
    from paddock.terminal import BadFlag, console

    if not 0 < port < 65536:
        raise BadFlag(f"--port {port} is no port\n    expected: 1 to 65535")
    folder = build.build(ROOT)
    shown = folder.relative_to(ROOT) if folder.is_relative_to(ROOT) else folder
    console().print(f"{shown}/index.html", soft_wrap=True)
    if serve:
        build.show(ROOT, port)


@task(name="generate")
def docs_generate(c: Context) -> None:
    """Write anew what the code generates: pictures, reference pages and schemas."""
    import subprocess
    import sys

    from paddock.operate import runbooks
    from paddock.site import generated
    from paddock.slurm.submit.method import schema_text
    from paddock.terminal import update

    generated.write_all(ROOT)
    update(ROOT / "docs/method.schema.json", schema_text())
    update(ROOT / "docs/why-runbooks.md", runbooks.page())
    # In a process of its own: the page is made of all tasks, and this is one of them.
    page = subprocess.run([sys.executable, "-m", "paddock.tasks.repository.reference"], cwd=ROOT, check=False)
    if page.returncode:
        raise Exit(code=page.returncode)
