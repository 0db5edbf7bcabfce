"""Engines that others keep, behind one door: llama.cpp on a processor or Metal, torch on a GPU."""
