"""The program that the Pulumi CLI runs."""

import gc
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # the CLI looks for modules in this folder alone

from infra.program import main

gc.disable()  # as for a plan: it makes much and drops little
main()
