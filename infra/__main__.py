"""What the Pulumi CLI runs."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # the CLI looks for modules in this folder alone

from infra.program import main  # noqa: E402 (found by the line above)

main()
