"""A Proxmox VE virtual machine with a GPU of its own: mapping, IOMMU groups, VFIO."""
