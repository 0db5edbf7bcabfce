"""Table of contents of Paddock: every command with its group, its place and a line of help.

Plain data, and no import: `./inv` reads it before there is any package. A line is the command's name, the lock sets
that it needs, the function that performs it, and its help, of which lists show the first sentence.
"""

FLEET = "Fleet: GPU runners in your AWS account"
LAB = "Lab: that fleet on this machine, without an AWS account"
GPUS = "GPUs: those in this machine"
MODELS = "Serve and bench: models on whatever devices there are"
SLURM = "Slurm: a node on this machine, and its jobs"
IMAGES = "Images: for runners and for machines"
FACTS = "Facts"
HIDDEN = "Entry points of images, shell completion, and maintenance of this repository"

TABLE = {
    FLEET: (
        ("plan", "infra", "paddock.plan.command:plan",
            "Show what a stack would be, what is wrong and what it costs. "
            "It needs no cloud, no credentials, no network."),
        ("init", "base", "paddock.tasks.init:init",
            "Write the stack file of a first fleet from a few answers."),
        ("init.github", "base", "paddock.init.github_app.command:github",
            "Show how to make the GitHub App that registers runners. "
            "With a form filled in, its permissions, ids and key."),
        ("init.permissions", "infra", "paddock.init.permissions.command:permissions",
            "Show the AWS permissions of pulumi up, or of other commands. "
            "As policies for a role."),
        ("doctor", "operate", "paddock.operate.doctor.command:doctor",
            "Say where pulumi up of a stack would fail, with the fix. "
            "Reads the account, GitHub and this machine."),
        ("status", "operate", "paddock.operate.status.command:status",
            "Show the state of a fleet. "
            "Pools, scale sets, the oldest waiting job with its reason, interruptions, USD an hour."),
        ("why", "operate", "paddock.operate.why.command:why",
            "Say why jobs wait: the first broken link, with its fix. "
            "Walks from GitHub's queue to the GPU, with evidence."),
        ("verify", "operate", "paddock.operate.verify.command:verify",
            "Prove that a GPU job can run. "
            "Nodes, nvidia-smi and torch in pods, a workflow; then it cleans up."),
        ("cost", "operate", "paddock.operate.cost.command:cost",
            "Compare what AWS charged with the plan's estimate. "
            "Names waste, and changes that cost less."),
        ("destroy", "operate", "paddock.operate.destroy.command:destroy",
            "Remove a fleet in order, and name what stays. "
            "Runners, volumes, the rest; what stays has its price and command."),
        ("runners.drain", "operate", "paddock.operate.runners.drain:drain",
            "Stop taking jobs, and let running ones finish. "
            "Of a runner, a pool with its nodes, or all."),
        ("runners.resume", "operate", "paddock.operate.runners.resume:resume",
            "Take jobs again after a drain."),
        ("runners.recycle", "operate", "paddock.operate.runners.recycle:recycle",
            "Replace stuck listeners and failed runners. "
            "They are deleted, and ARC makes new ones; one with a job stays."),
        ("runners.rerun", "operate", "paddock.operate.runners.rerun.command:rerun",
            "Rerun jobs whose node was reclaimed. "
            "At most twice; says why it leaves each of the others."),
        ("runners.upgrade", "operate", "paddock.operate.runners.upgrade:upgrade",
            "Upgrade ARC to the pinned version. "
            "Drain, CRDs and controller, scale sets, each checked; then resume."),
    ),
    LAB: (
        ("lab.up", "lab", "paddock.lab.commands:up",
            "Apply a stack on this machine. "
            "Real Pulumi and Kubernetes, stand-ins for AWS and GitHub, simulated nodes."),
        ("lab.demo", "lab", "paddock.lab.commands:show_demo",
            "Follow one GPU job in the lab until its node is gone."),
        ("lab.status", "lab", "paddock.lab.commands:status",
            "Show the lab: its processes, nodes and jobs."),
        ("lab.down", "lab", "paddock.lab.commands:down",
            "Stop the lab and remove all of it."),
    ),
    GPUS: (
        ("gpu.list", "base", "paddock.gpu.commands.list:list_gpus",
            "List this machine's GPUs, usable or not. "
            "With their memory, processes, links, leases and CUDA where asked."),
        ("gpu.health", "base", "paddock.gpu.commands.health:health",
            "Check this machine's GPUs. "
            "Exit code 0 healthy, 1 degraded, 2 unhealthy, 3 unknown."),
        ("gpu.monitor", "base", "paddock.gpu.commands.monitor:monitor",
            "Watch the GPUs and report what slows them down. "
            "Throttling, idling, full memory, imbalance; or metrics for Prometheus."),
        ("gpu.allocate", "base", "paddock.gpu.commands.allocate:allocate",
            "Lease GPUs. "
            "Prints the variables that show them to a program, for the shell's eval."),
        ("gpu.deallocate", "base", "paddock.gpu.commands.deallocate:deallocate",
            "Release leased GPUs (default: this shell's)."),
        ("gpu.run", "base", "paddock.gpu.commands.run:run",
            "Run a program on GPUs of its own: gpu.run -- train.py."),
        ("gpu.reset", "base", "paddock.gpu.commands.reset:reset",
            "Show what resetting a GPU would do; --yes does it. "
            "Refused while it is in use."),
        ("gpu.render", "base", "paddock.gpu.commands.render:render",
            "Write the configuration that gives GPUs to a program. "
            "Docker, Compose, CDI, Kubernetes, Proxmox, Slurm or a shell."),
        ("gpu.ml-env", "base", "paddock.gpu.commands.ml_env:ml_env",
            "Lease GPUs and start a framework that fits the driver. "
            "Prints the environment, or starts it."),
        ("gpu.workflow", "base", "paddock.gpu.workflow.command:workflow",
            "Run steps on GPUs in their order. "
            "A second run continues after the last step that succeeded."),
        ("gpu.mcp", "mcp", "paddock.gpu.mcp:mcp",
            "Serve the GPU actions to an AI agent. "
            "Over stdin and stdout, by the Model Context Protocol."),
        ("smoke", "bench", "paddock.smoke.command:smoke",
            "Test whether this machine's GPUs can take jobs. "
            "Exit code 0: yes, 1: no, 5: no GPU to test."),
    ),
    MODELS: (
        ("serve.plan", "base", "paddock.serve.commands.plan:plan",
            "Plan where a model would run. "
            "Devices, tensor parallelism, memory by part, and what stays unused."),
        ("serve.up", "serve", "paddock.serve.commands.up:up",
            "Start a cluster on this machine. "
            "Head, scheduler and an OpenAI-compatible interface."),
        ("serve.join", "serve", "paddock.serve.commands.join:join",
            "Join this machine and its devices to a cluster."),
        ("serve.nodes", "serve", "paddock.serve.commands.nodes:nodes",
            "Show the machines of the cluster and their devices. "
            "And what those serve."),
        ("serve.load", "serve", "paddock.serve.commands.load:load",
            "Load a model on the devices that the plan chooses."),
        ("serve.models", "serve", "paddock.serve.commands.models:models",
            "Show the loaded models and their states."),
        ("serve.infer", "serve", "paddock.serve.commands.infer:infer",
            "Send a prompt to a loaded model, and stream the answer."),
        ("serve.unload", "serve", "paddock.serve.commands.unload:unload",
            "Unload a model."),
        ("serve.down", "serve", "paddock.serve.commands.down:down",
            "Stop the cluster's processes on this machine. "
            "The head and the agents."),
        ("serve.check", "base", "paddock.serve.commands.check:check",
            "Check a resource mode for a deployment. "
            "Goes through its checklist; or prints its alerts for Prometheus."),
        ("bench", "bench", "paddock.bench.commands.bench:bench",
            "Measure how fast this machine serves a model. "
            "Against its physical limit, and in money."),
        ("bench.load", "base", "paddock.bench.commands.load:load",
            "Measure an OpenAI-compatible server under load. "
            "TTFT, TPOT, throughput, goodput."),
        ("bench.compare", "base", "paddock.bench.commands.compare:compare",
            "Judge a new result: is it a regression, or noise?"),
    ),
    SLURM: (
        ("slurm.configure", "build", "paddock.slurm.commands.configure:configure",
            "Configure a Slurm node in a container. "
            "Detects the GPUs, proves that Docker passes them, writes and builds."),
        ("slurm.submit", "base", "paddock.slurm.commands.submit:submit",
            "Submit a method to Slurm. "
            "Its command, with the CPUs, memory and GPUs that method.json asks for."),
        ("slurm.status", "base", "paddock.slurm.commands.status:status",
            "Show Slurm's queue and nodes. "
            "What each job waits for, how jobs ended, and what the nodes use."),
        ("slurm.cancel", "base", "paddock.slurm.commands.cancel:cancel",
            "Cancel Slurm jobs."),
        ("slurm.test", "base", "paddock.slurm.commands.test:test",
            "Run a job on every GPU of Slurm, and one without. "
            "At the same time; each checks what it sees."),
        ("slurm.cloud", "base", "paddock.slurm.commands.cloud:cloud",
            "Write AWS ParallelCluster's configuration, with its cost. "
            "For those who outgrow one machine."),
    ),
    IMAGES: (
        ("images.build", "build", "paddock.images.commands.build:build",
            "Build an image of images/ (runner, slurm), or the wheel. "
            "The same content is never built twice."),
        ("images.push", "build", "paddock.images.commands.push:push",
            "Push the runner image that was built from this checkout."),
        ("images.list", "build", "paddock.images.commands.list:list_images",
            "List a stack's images and those built here. "
            "Or the layers of one."),
        ("images.check", "build", "paddock.images.commands.check:check",
            "Check the images of a stack's runners. "
            "Age, pin, and whether their CUDA fits the nodes."),
        ("images.mirror", "infra", "paddock.plan.mirror:mirror",
            "Print commands that copy charts and images to the mirror."),
        ("ami.build", "build", "paddock.images.commands.ami_build:build",
            "Build a GPU machine image, and follow the build. "
            "With the stack's pipeline; a later call can follow it again."),
        ("ami.list", "build", "paddock.images.commands.ami_list:list_amis",
            "List the fleet's machine images, and what uses them."),
        ("ami.promote", "build", "paddock.images.commands.ami_promote:promote",
            "Pin a machine image in the stack file. "
            "Only if it fits every pool and runner image that would use it."),
        ("ami.prune", "build", "paddock.images.commands.ami_prune:prune",
            "Show unused images and snapshots; --yes removes them."),
    ),
    FACTS: (
        ("catalog", "base", "paddock.catalog.commands:catalog",
            "List GPU instance types with their prices."),
    ),
    HIDDEN: (
        ("completion", "base", "paddock.console.completion:completion",
            'Print the script that completes commands in a shell. '
            'As in eval "$(./inv completion --shell bash)".'),
        ("gpu.renew", "base", "paddock.gpu.commands.renew:renew",
            "Renew leases (default: this shell's). "
            "Their time to live counts from now."),
        ("slurm.start", "base", "paddock.slurm.commands.node:start",
            "Run a Slurm node in its container. "
            "Detects the GPUs, writes Slurm's files, starts and watches the daemons."),
        ("slurm.health", "base", "paddock.slurm.commands.node:health",
            "Check the Slurm node of this container. "
            "munge, the controller and the node's state."),
        ("check", "dev", "paddock.tasks.repository:check",
            "Lint, then test, as CI does before it starts real engines."),
        ("lint", "dev", "paddock.tasks.repository:lint",
            "Check style, types and imports."),
        ("test", "dev", "paddock.tasks.repository:test",
            "Run the test suite. "
            "What a bare machine can; everything after -- goes to pytest."),
        ("lock", "dev", "paddock.tasks.repository:lock",
            "Write locks/*.txt from pyproject.toml."),
        ("docs", "docs", "paddock.tasks.repository:docs",
            "Build the site of the documentation in build/site. "
            "A broken link fails it."),
        ("docs.generate", "infra", "paddock.tasks.repository:generate",
            "Regenerate the files that the code writes. "
            "Pictures, reference pages and schemas."),
        ("catalog.refresh", "aws", "paddock.catalog.commands:refresh",
            "Update the catalogue's AWS facts. "
            "With the credentials of the environment."),
    ),
}  # fmt: skip

ALIASES = {"build-runner": "images.build runner", "push-runner": "images.push"}
"""Second names, which users' documents have."""

ON_A_NODE = (
    "gpu", "smoke", "serve", "bench", "slurm.submit", "slurm.status", "slurm.cancel", "slurm.test", "slurm.cloud",
    "slurm.start", "slurm.health", "catalog", "completion",
)  # fmt: skip
"""Commands, or groups of them, that need no checkout."""

RENAMED = {
    "arc.upgrade": "runners.upgrade",
    "aws.permissions": "init.permissions",
    "bench.modes": "bench --mode, and serve.check",
    "bench.run": "bench",
    "build-ami": "ami.build",
    "build-image": "images.build",
    "catalog.instances": "catalog",
    "configure": "slurm.configure",
    "docs.build": "docs",
    "fleet.destroy": "destroy",
    "github.app": "init.github",
    "gpu.cuda-info": "gpu.list --cuda",
    "gpu.export": "gpu.monitor --export",
    "gpu.info": "gpu.list --details",
    "gpu.leases": "gpu.list --leases",
    "gpu.memory-info": "gpu.list --memory",
    "gpu.processes": "gpu.list --processes",
    "gpu.topology": "gpu.list --topology",
    "images.size": "images.list IMAGE",
    "mirror": "images.mirror",
    "runner.build": "images.build runner",
    "runner.push": "images.push",
    "schema": "init --schema",
    "slurm.build": "images.build slurm",
    "slurm.nodes": "slurm.status --nodes",
    "wheel": "images.build wheel",
}
"""Old names, and what replaces them."""
