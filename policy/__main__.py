"""The policy pack: `pulumi preview --policy-pack policy`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # the CLI looks for modules in this folder alone

from policy.pack import publish

publish()
