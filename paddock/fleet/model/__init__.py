"""The typed fleet. What holds between its parts is in `validation`, positions in files in `stackfile`."""
