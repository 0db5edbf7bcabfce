"""A Proxmox VE virtual machine with a GPU of its own: mapping, IOMMU groups, VFIO."""

from paddock.gpu.render.proxmox.machine import render as render
