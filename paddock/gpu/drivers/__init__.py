"""Readers of GPU drivers behind one protocol: NVML, amdgpu's sysfs, Apple's programs; and the diagnosis of failures.

Nothing here decides about leases or health, and nothing outside imports pynvml or amdsmi.
"""
