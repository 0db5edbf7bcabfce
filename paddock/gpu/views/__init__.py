"""Views of the GPUs of a machine: what `gpu.list` shows, each as text and as a document."""
