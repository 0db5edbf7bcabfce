"""Engines that `bench` measures, behind one door."""
