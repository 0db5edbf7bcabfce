#include "supervise.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

constexpr std::size_t kStepBytes = 128;
constexpr auto kGrace = std::chrono::milliseconds(500);

struct Child {
    pid_t pid = -1;
    int pipe = -1;
    char* step = nullptr;  // shared with the child
    std::string text;
};

[[noreturn]] void fail(const char* doing) {
    std::fprintf(stderr, "cuda-smoke: %s: %s\n", doing, std::strerror(errno));
    std::exit(1);
}

[[noreturn]] void work(const Job& job, int pipe, char* step, pid_t parent) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    const Answer answer = job([step](const char* at) { std::snprintf(step, kStepBytes, "%s", at); });
    for (std::size_t sent = 0; sent < answer.text.size();) {
        const ssize_t more = write(pipe, answer.text.data() + sent, answer.text.size() - sent);
        if (more < 0 && errno != EINTR) _exit(1);
        if (more > 0) sent += static_cast<std::size_t>(more);
    }
    // No destructors and no exit handlers: a driver that hangs in its own would take the answer along.
    _exit(answer.status);
}

Child start(const Job& job) {
    Child child;
    void* shared = mmap(nullptr, kStepBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) fail("cannot share memory with a process");
    child.step = static_cast<char*>(shared);
    int ends[2];
    if (pipe(ends) != 0) fail("cannot make a pipe");
    const pid_t parent = getpid();
    child.pid = fork();
    if (child.pid < 0) fail("cannot start a process");
    if (child.pid == 0) {
        close(ends[0]);
        work(job, ends[1], child.step, parent);
    }
    close(ends[1]);
    child.pipe = ends[0];
    return child;
}

int milliseconds_until(Deadline deadline) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now()).count();
    return static_cast<int>(std::clamp<long long>(left, 0, 60'000));
}

// Until every pipe is closed or the deadline has come.
void read_all(std::vector<Child>& children, Deadline deadline) {
    for (;;) {
        std::vector<pollfd> waiting;
        std::vector<Child*> whose;
        for (auto& child : children) {
            if (child.pipe < 0) continue;
            waiting.push_back({child.pipe, POLLIN, 0});
            whose.push_back(&child);
        }
        if (waiting.empty() || std::chrono::steady_clock::now() >= deadline) return;
        if (poll(waiting.data(), waiting.size(), milliseconds_until(deadline)) < 0 && errno != EINTR) fail("poll");
        for (std::size_t i = 0; i < waiting.size(); ++i) {
            if (waiting[i].revents == 0) continue;
            char part[4096];
            const ssize_t got = read(waiting[i].fd, part, sizeof part);
            if (got > 0) {
                whose[i]->text.append(part, static_cast<std::size_t>(got));
            } else if (got == 0 || errno != EINTR) {
                close(whose[i]->pipe);
                whose[i]->pipe = -1;
            }
        }
    }
}

// The status of a process that has ended or will until then; false for one that the kernel does not let go.
bool reap(pid_t pid, int& status, Deadline until) {
    for (;;) {
        const pid_t ended = waitpid(pid, &status, WNOHANG);
        if (ended == pid) return true;
        if (std::chrono::steady_clock::now() >= until) return false;
        poll(nullptr, 0, 5);
    }
}

}  // namespace

std::vector<Outcome> run_apart(const std::vector<Job>& jobs, Deadline deadline) {
    std::vector<Child> children;
    children.reserve(jobs.size());
    for (const auto& job : jobs) children.push_back(start(job));
    read_all(children, deadline);
    for (const auto& child : children) {
        if (child.pipe >= 0) kill(child.pid, SIGKILL);
    }
    const auto until = std::chrono::steady_clock::now() + kGrace;  // of all together: eight may hang at once

    std::vector<Outcome> outcomes;
    for (auto& child : children) {
        Outcome outcome{Outcome::End::answered, {}, 0, child.step};
        int status = 0;
        if (child.pipe >= 0) {
            outcome.end = Outcome::End::timed_out;
            close(child.pipe);
            reap(child.pid, status, until);
        } else if (!reap(child.pid, status, until) || !WIFEXITED(status) || child.text.empty()) {
            outcome.end = Outcome::End::crashed;
            outcome.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
        } else {
            outcome.answer = {WEXITSTATUS(status), std::move(child.text)};
        }
        munmap(child.step, kStepBytes);
        outcomes.push_back(std::move(outcome));
    }
    return outcomes;
}
