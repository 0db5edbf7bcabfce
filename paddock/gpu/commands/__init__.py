"""Commands on the GPUs of a machine, each with its parameters, its report and its text in one file."""
