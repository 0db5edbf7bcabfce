"""What happens around a job in the pod that runs it: before, meanwhile, and after."""
