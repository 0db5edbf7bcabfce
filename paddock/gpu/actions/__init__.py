"""Every action on GPUs once: its parameters, its handler and its text. Tasks, agents and workflows derive from it."""
