"""Serving of models by Ray: KubeRay's operator, and the RayService with all that surrounds it."""
