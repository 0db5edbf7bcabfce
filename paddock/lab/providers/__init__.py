"""Stand-ins for Pulumi's providers: processes that speak the engine's protocol and make everything up."""
