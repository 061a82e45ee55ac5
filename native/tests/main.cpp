// Runs all cases, or those whose name contains the argument.
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <mutex>

#include "check.hpp"

namespace heterps::testing {

namespace {

int failures = 0;
std::mutex mutex;

}  // namespace

std::vector<Case>& cases() {
    static std::vector<Case> all;
    return all;
}

void fail(const char* file, int line, const std::string& what) {
    const std::lock_guard<std::mutex> lock(mutex);
    ++failures;
    std::fprintf(stderr, "%s:%d: %s\n", file, line, what.c_str());
}

TemporaryFolder::TemporaryFolder() {
    std::string name = std::filesystem::temp_directory_path() / "heterps-XXXXXX";
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary folder");
    path_ = name;
}

TemporaryFolder::~TemporaryFolder() { std::filesystem::remove_all(path_); }

}  // namespace heterps::testing

int main(int count, char** arguments) {
    using namespace heterps::testing;
    const std::string wanted = count > 1 ? arguments[1] : "";
    int run = 0;
    for (const Case& test : cases()) {
        if (std::string(test.name).find(wanted) == std::string::npos) continue;
        ++run;
        try {
            test.body();
        } catch (const std::exception& error) {
            fail(test.name, 0, error.what());
        }
    }
    std::printf("%d native tests, %d failures\n", run, failures);
    return failures == 0 && run > 0 ? 0 : 1;
}
