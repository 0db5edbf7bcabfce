"""The stand-in for GitHub as a process: `python -m paddock.lab.github PORT FOLDER`."""

from __future__ import annotations

import sys
from pathlib import Path

from paddock.lab.control_plane import daemon
from paddock.lab.errors import LabError
from paddock.lab.github.server import Server


def main(port: int, folder: Path) -> None:
    """Serve on a port of loopback, with the state kept in a folder, until the process is ended."""
    try:
        server = Server(port, folder)
    except (LabError, OSError) as error:
        sys.exit(str(error))
    daemon.log(f"listening on {server.url}")
    server.serve_forever()


if __name__ == "__main__":
    daemon.run_until_terminated(lambda: main(int(sys.argv[1]), Path(sys.argv[2])))
