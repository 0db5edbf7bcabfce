// Work that may hang or crash, as work with a GPU does, in processes that can be left behind.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

struct Answer {
    int status = 0;
    std::string text;
};

struct Outcome {
    enum class End { answered, crashed, timed_out } end;
    Answer answer;     // of one that answered
    int signal = 0;    // of one that crashed, 0 where it ended by itself
    std::string step;  // the last that it said it was at
};

using Deadline = std::chrono::steady_clock::time_point;

// A job is given what to call before each step.
using Job = std::function<Answer(const std::function<void(const char*)>& at)>;

// Runs every job in a process of its own, all at the same time, and returns at most half a second after the deadline.
std::vector<Outcome> run_apart(const std::vector<Job>& jobs, Deadline deadline);
