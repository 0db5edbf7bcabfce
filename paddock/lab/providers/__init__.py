"""Stand-ins for Pulumi's providers: processes that speak the engine's protocol and create nothing anywhere else."""
