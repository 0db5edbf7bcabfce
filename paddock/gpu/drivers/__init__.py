"""GPU drivers, one protocol: NVML, amdgpu's sysfs, Apple's programs; and why a driver cannot be used."""
