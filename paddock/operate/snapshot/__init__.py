"""One reading of a fleet: cluster, AWS and GitHub at one time, each part known or unknown with its reason."""
