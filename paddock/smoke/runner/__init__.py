"""Running the stages: worker processes with time limits, all devices at once, leases on the GPUs under test."""
