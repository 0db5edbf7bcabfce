"""Engines that others keep, behind one door: llama.cpp on a CPU or Metal, torch on a GPU."""
