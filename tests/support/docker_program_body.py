# ruff: noqa: B905, F821, RUF007, T201 - a script by itself
# What follows the first lines of the program: STATE is the folder that it may write to.
import json
import os
import re
import signal
import sys
import time

argv = sys.argv[1:]
signal.signal(signal.SIGINT, signal.SIG_DFL)


def path(name):
    return os.path.join(STATE, name)


def load(name, default):
    try:
        with open(path(name)) as file:
            return json.load(file)
    except FileNotFoundError:
        return default


settings = load("settings.json", {})
images = load("images.json", {})  # reference -> {"labels", "env", "args"}
pushed = load("pushed.json", {})  # reference -> digest


def values(option):
    return [word for before, word in zip(argv, argv[1:]) if before == option]


def keep(name, document):
    with open(path(name), "w") as file:
        json.dump(document, file)


def absent(reference):
    sys.exit(f"Error response from daemon: No such image: {reference}")


def known(reference):
    """Return the name under which an image is there: one that was pulled by digest has no tag."""
    digest = reference.partition("@")[2]
    return next((name for name in images if name == reference or (digest and name.endswith(digest))), None)


def described(reference):
    image = images[known(reference)]
    config = {"Labels": image["labels"], "Env": [], "User": "1001"}
    digests = [f"{name.rpartition(':')[0]}@{digest}" for name, digest in pushed.items() if name == reference]
    return {
        "Id": "sha256:" + "1" * 64,
        "Size": 5_000_000,
        "Created": "2026-11-20T00:00:00Z",
        "Config": config,
        "RepoDigests": digests,
        "Architecture": "amd64",
    }


def build():
    if "buildx" in argv[:1]:
        print("#5 [1/2] FROM base", file=sys.stderr)
    print("#6 [2/2] RUN make", file=sys.stderr)
    print("#6 DONE 0.1s", file=sys.stderr)
    labels = dict(word.partition("=")[::2] for word in values("--label"))
    for tag in values("--tag"):
        images[tag] = {"labels": labels, "args": values("--build-arg")}
    keep("images.json", images)


def run():
    for volume in values("--volume"):
        folder, _, inside = volume.partition(":")
        if inside == "/output":
            for name, content in settings["programs"].items():
                with open(os.path.join(folder, name), "w") as file:
                    file.write(content)
    for subject in re.findall(r"'%s\\t%s\\n' '([^']*)'", argv[-1]):
        print(subject, settings["checks"].get(subject, "there"), sep="\t")
    if argv[-1].endswith("paddock --version\n"):  # the look at the image of a Slurm node
        print(settings["checks"]["paddock"])


def in_container():
    words = argv[1:]
    if words[:1] == ["-i"]:
        words = words[1:]
    answers = settings["containers"][words[0]]
    line = " ".join(words[1:])
    for start in sorted(answers, key=len, reverse=True):
        if line.startswith(start):
            print(answers[start])
            return
    sys.exit(f"{line}: no answer")


def dial():
    request = b""
    while not request.endswith(b"\r\n\r\n"):
        request += os.read(0, 1)
    reference = request.split()[1].decode().removeprefix("/distribution/").removesuffix("/json")
    status = "200 OK" if reference in pushed else "404 Not Found"
    body = {"Descriptor": {"digest": pushed.get(reference)}} if reference in pushed else {"message": "not found"}
    text = json.dumps(body)
    sys.stdout.write(f"HTTP/1.1 {status}\r\nContent-Length: {len(text)}\r\n\r\n{text}")


with open(path("calls"), "a") as log:
    log.write(json.dumps(argv) + "\n")
if settings["hang"] and " ".join(argv).startswith(settings["hang"]):
    open(path("hanging"), "w").close()
    time.sleep(600)
two = " ".join(argv[:2])
if argv[0] == "--version":
    print("Docker version 29.0.1, build 1")
elif two in ("version --format", "info --format"):
    print(json.dumps({"Name": "another machine", "NCPU": 4, "MemTotal": 16 << 30, "Runtimes": {"runc": {}}}))
elif two == "context inspect":
    print("default")
elif two == "network ls":
    print("bridge")
elif two == "image inspect":
    if known(argv[2]) is None:
        absent(argv[2])
    print(json.dumps([described(argv[2])]))
elif two == "image ls":
    label = values("--filter")[0].removeprefix("label=").partition("=")[0]
    print("\n".join(name for name, image in images.items() if label in image["labels"]))
elif two == "image rm":
    images.pop(argv[-1], None)
    keep("images.json", images)
elif argv[0] in ("build", "buildx") and "--tag" in argv:
    build()
elif argv[0] == "tag":
    if argv[1] not in images:
        absent(argv[1])
    images[argv[2]] = images[argv[1]]
    keep("images.json", images)
elif argv[0] == "pull":
    images[argv[-1]] = {"labels": {}, "args": []}
    keep("images.json", images)
elif argv[0] == "push":
    pushed[argv[-1]] = "sha256:" + "2" * 64
    keep("pushed.json", pushed)
elif argv[0] == "history":
    print(json.dumps({"Size": "4000000", "CreatedBy": "RUN make"}))
    print(json.dumps({"Size": "1000000", "CreatedBy": "COPY . /"}))
elif argv[0] == "run":
    run()
elif two == "container inspect":
    if argv[-1] not in settings["containers"]:
        sys.exit(f"Error response from daemon: No such container: {argv[-1]}")
    print(json.dumps({"running": True, "mounts": []}))
elif argv[0] == "exec":
    in_container()
elif argv[0] == "login":
    sys.stdin.read()
elif two == "system dial-stdio":
    dial()
