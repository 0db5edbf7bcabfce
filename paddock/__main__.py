"""`python -m paddock`: what `./inv` becomes once its environment is ready."""

import signal
import sys

try:
    # `./inv` blocks Ctrl-C while the interpreter starts, where it would print a traceback; from here it is answered.
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    from paddock.tasks.program import main

    code = main()
except KeyboardInterrupt:
    sys.stderr.write("interrupted\n")
    code = 130
except ModuleNotFoundError as error:
    from paddock.errors import missing_module

    sys.stderr.write(f"{missing_module(error)}\n")
    code = 1
sys.exit(code)
