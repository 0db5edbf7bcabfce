// As much of a JSON writer as the report needs.
#pragma once

#include <cmath>
#include <cstdio>
#include <string>
#include <string_view>
#include <type_traits>

namespace json {

inline std::string quoted(std::string_view text) {
    std::string out = "\"";
    for (const char c : text) {
        if (c == '"' || c == '\\') {
            out += '\\';
            out += c;
        } else if (static_cast<unsigned char>(c) < 0x20) {
            char escaped[8];
            std::snprintf(escaped, sizeof escaped, "\\u%04x", static_cast<unsigned>(c));
            out += escaped;
        } else {
            out += c;
        }
    }
    return out + '"';
}

template <class Value>
std::string number(Value value) {
    static_assert(std::is_arithmetic_v<Value>);
    if constexpr (std::is_floating_point_v<Value>) {
        if (!std::isfinite(value)) return "null";
        char text[32];
        std::snprintf(text, sizeof text, "%.9g", static_cast<double>(value));
        return text;
    } else {
        return std::to_string(value);
    }
}

class Array {
public:
    Array& add(std::string_view rendered) {
        body_ += body_.empty() ? "" : ", ";
        body_ += rendered;
        return *this;
    }
    std::string str() const { return '[' + body_ + ']'; }

private:
    std::string body_;
};

class Object {
public:
    // A value that is JSON already.
    Object& raw(std::string_view key, std::string_view rendered) {
        body_ += body_.empty() ? "" : ", ";
        body_ += quoted(key);
        body_ += ": ";
        body_ += rendered;
        return *this;
    }
    Object& text(std::string_view key, std::string_view value) { return raw(key, quoted(value)); }
    Object& boolean(std::string_view key, bool value) { return raw(key, value ? "true" : "false"); }
    template <class Value>
    Object& number(std::string_view key, Value value) {
        return raw(key, json::number(value));
    }
    // Empty is null: not known.
    Object& text_or_null(std::string_view key, std::string_view value) {
        return value.empty() ? raw(key, "null") : text(key, value);
    }
    // All members of another object.
    Object& members(const Object& other) {
        if (!other.body_.empty()) body_ += (body_.empty() ? "" : ", ") + other.body_;
        return *this;
    }
    std::string str() const { return '{' + body_ + '}'; }

private:
    std::string body_;
};

}  // namespace json
