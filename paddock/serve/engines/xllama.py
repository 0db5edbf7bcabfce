"""llama.cpp's server from the package xllamacpp, with the arguments of `llama-server` that Paddock uses.

This file runs alone: python xllama.py --model FILE --port PORT ... The API key comes by LLAMA_API_KEY.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading


def main(words: list[str]) -> int:
    """Serve until SIGTERM, and return the exit code: 1 where the model cannot be loaded."""
    parser = argparse.ArgumentParser(prog="xllama")
    for name in ("model", "alias", "host", "tensor-split", "device"):
        parser.add_argument(f"--{name}")
    for name in ("port", "ctx-size", "parallel", "threads", "n-gpu-layers"):
        parser.add_argument(f"--{name}", type=int, default=0)
    parser.add_argument("--split-mode", choices=["none", "layer", "row"], default="layer")
    parser.add_argument("--metrics", action="store_true")
    flags = parser.parse_args(words)
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = flags.model
    params.model_alias = {flags.alias}
    params.hostnames = [flags.host]
    params.port = flags.port
    params.n_ctx, params.n_parallel = flags.ctx_size, flags.parallel
    params.n_gpu_layers = flags.n_gpu_layers
    params.no_op_offload = flags.device == "none"
    if flags.threads:
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = flags.threads
    if flags.split_mode == "row":
        params.split_mode = xllamacpp.llama_split_mode.LLAMA_SPLIT_MODE_ROW
    if flags.tensor_split:
        parts = [float(part) for part in flags.tensor_split.split(",")]
        params.tensor_split = parts + [0.0] * (len(params.tensor_split) - len(parts))
    params.api_keys = [os.environ["LLAMA_API_KEY"]] if os.environ.get("LLAMA_API_KEY") else []
    params.endpoint_metrics = flags.metrics
    params.fit_params = params.ui = False
    ended = threading.Event()
    try:
        server = xllamacpp.Server(params)
    except (RuntimeError, ValueError, MemoryError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    # The server takes the signals for itself while it starts.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    sys.stderr.write(f"serving at {server.listening_address}\n")
    sys.stderr.flush()
    ended.wait()
    os._exit(0)  # its threads do not end while requests run


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
