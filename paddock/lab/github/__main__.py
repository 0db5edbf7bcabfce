"""The stand-in for GitHub as a process: `python -m paddock.lab.github --port P --folder F`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from paddock.lab.control_plane import daemon
from paddock.lab.errors import LabError
from paddock.lab.github.server import Server


def main() -> None:
    """Serve until the process is ended."""
    parser = argparse.ArgumentParser(prog="paddock.lab.github")
    parser.add_argument("--port", type=int, required=True, help="of 127.0.0.1; 0 takes any that is free")
    parser.add_argument("--folder", type=Path, required=True, help="where its state is kept")
    arguments = parser.parse_args()
    try:
        arguments.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        server = Server(arguments.port, arguments.folder)
    except (LabError, OSError) as error:
        sys.exit(str(error))
    daemon.log(f"listening on {server.url}")
    server.serve_forever()


if __name__ == "__main__":
    daemon.run_until_terminated(main)
