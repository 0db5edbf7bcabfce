"""`python -m paddock.serve.gateway CONFIG`."""

import sys

from paddock.serve.gateway.program import main

sys.exit(main(sys.argv[1:]))
