"""Engine of a replica: continuous batching of requests on one device, within the limits of a resource mode."""
