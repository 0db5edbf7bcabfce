"""Engines that run a model behind four calls: load, prefill, decode, unload."""
