"""GPUs of this machine: see them, choose, lease, watch and judge them, and write the configuration that uses them."""
